"""The whole market where torch is not installed: only the CNN needs it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.commands import call
from tests.market.common import settings, write_images

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("mnist"))


@pytest.fixture
def no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every process from here on, importing torch fails as if it were not there."""
    package = tmp_path / "path" / "torch"
    package.mkdir(parents=True)
    text = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    (package / "__init__.py").write_text(text)
    path = os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path.rstrip(os.pathsep))


def words(images: Path, **more: object) -> list[str]:
    given = {**settings(images), "owners": 3, "rounds": 2, **more}
    return [word for name, value in given.items() for word in ("--set", f"{name}={json.dumps(value)}")]  # fmt: skip  # noqa: E501


@pytest.mark.usefixtures("no_torch")
def test_a_market_runs_with_its_workers_and_baselines(images: Path, tmp_path: Path) -> None:
    given = words(images, noise="secure")
    done = call("run", *given, "--workers", "2", "--draws", "2", "--json", "--out", "r", cwd=tmp_path)  # fmt: skip  # noqa: E501
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["contracts_kept"] == 3


@pytest.mark.usefixtures("no_torch")
def test_the_cnn_names_the_extra_that_it_lacks(images: Path, tmp_path: Path) -> None:
    done = call("run", *words(images, model="cnn"), "--out", "r", cwd=tmp_path)
    assert done.returncode == 2
    assert "noisemarket[cnn]" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "r").exists()
