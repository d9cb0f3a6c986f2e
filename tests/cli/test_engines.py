"""``run --engine`` with an engine of another package, by its entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.market.common import words, write_images
from typer.testing import CliRunner

from noisemarket.cli import engines, main
from noisemarket.cli.app import app
from noisemarket.errors import BadInput

pytestmark = pytest.mark.training

PACKAGE = """
from tests.market.common import here

from noisemarket.market.serial_engine import SerialEngine

class Mine(SerialEngine):
    made = []

    def __init__(self, job):
        super().__init__(job)
        self.made.append(job)

def whole(market, folder, settings):
    return here(market, folder, watch=settings.watch, stop=settings.stop)

NEITHER = 7
"""


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that brings three engines, one of which is none."""
    (tmp_path / "engine_package.py").write_text(PACKAGE, encoding="utf-8")
    info = tmp_path / "engine_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: engine_package\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"{name} = engine_package:{part}" for name, part in
             {"mine": "Mine", "whole": "whole", "neither": "NEITHER"}.items()]  # fmt: skip
    text = "\n".join([f"[{engines.GROUP}]", *lines, ""])
    (info / "entry_points.txt").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(engines, "ENGINES", engines.find_engines())


@pytest.mark.parametrize("name", ["mine", "whole"])
@pytest.mark.usefixtures("brought", "undrawn")
def test_an_engine_of_another_package_runs_a_market(tmp_path: Path, name: str) -> None:
    (tmp_path / "images").mkdir()
    images = write_images(tmp_path / "images", 60, 20)
    given = words(images, owners=2, rounds=1)
    with pytest.raises(SystemExit) as end:
        main([*given, "--engine", name, "--out", str(tmp_path / "run")])
    assert not end.value.code
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["engine"]) == ("complete", name)
    if name == "mine":
        from engine_package import Mine

        assert len(Mine.made) == 1


@pytest.mark.usefixtures("brought")
def test_what_is_not_an_engine_is_said_before_anything_is_written(tmp_path: Path) -> None:
    for name, said in (("neither", "cannot be loaded"), ("ray", "embedded, flower, mine, whole")):
        result = CliRunner().invoke(app, ["run", "--engine", name, "--out", str(tmp_path / "run")])
        assert isinstance(result.exception, BadInput)
        assert said in str(result.exception)
    assert not (tmp_path / "run").exists()
