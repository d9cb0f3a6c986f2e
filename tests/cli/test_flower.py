"""``noisemarket flower`` and ``run --engine``: what is refused, and the app that is written."""

import os
from pathlib import Path

import pytest
from tests.commands import assert_sentence, call
from typer.testing import CliRunner

from noisemarket import flower
from noisemarket.cli.app import app
from noisemarket.errors import BadInput, MissingExtra
from noisemarket.ledger.keys import KeyPair

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'noisemarket[flower]'")


def refused(*words: str) -> str:
    """What a command that is refused says."""
    result = CliRunner().invoke(app, list(words))
    assert isinstance(result.exception, BadInput)
    return str(result.exception)


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert "choose embedded or flower" in refused("run", "--engine", "ray", "--out", str(out))
    assert not out.exists()


def test_what_messages_cannot_do_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "run"
    small = ["--set", "owners=3", "--out", str(out), "--engine", "flower"]
    assert "needs the private numbers" in refused("run", "--mechanism", "equilibrium", *small)
    assert not out.exists()


def test_a_curators_key_is_made_once_and_printed(tmp_path: Path) -> None:
    first, again = (
        CliRunner().invoke(app, ["flower", "key", str(tmp_path / "curator")]) for _ in range(2)
    )
    assert first.output == again.output == KeyPair.load(tmp_path / "curator").public_hex + "\n"
    (tmp_path / "curator").chmod(0o755)
    assert "others may read it" in refused("flower", "key", str(tmp_path / "curator"))


def test_the_app_is_written_once(tmp_path: Path) -> None:
    place = tmp_path / "app"
    assert CliRunner().invoke(app, ["flower", "app", str(place)]).exit_code == 0
    names = {str(path.relative_to(place)) for path in place.rglob("*.*")}
    assert names >= {"pyproject.toml", "market_app/client_app.py", "market_app/server_app.py"}
    assert "exists already" in refused("flower", "app", str(place))


def test_without_ray_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = flower.find_spec
    monkeypatch.setattr(flower, "find_spec", lambda name: None if name == "ray" else find(name))
    words = ["--engine", "flower", "--set", "owners=2", "--out", str(tmp_path / "r")]
    result = CliRunner().invoke(app, ["run", *words])
    assert isinstance(result.exception, MissingExtra)
    assert "pip install 'noisemarket[flower]'" in str(result.exception)
    assert not (tmp_path / "r").exists()


@pytest.fixture(params=["missing", "old"])
def no_flower(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every process from here on Flower is not there, or is one without ``flwr.app``."""
    package = tmp_path / "path" / "flwr"
    package.mkdir(parents=True)
    missing = "raise ModuleNotFoundError(\"No module named 'flwr'\", name='flwr')\n"
    (package / "__init__.py").write_text(missing if request.param == "missing" else "")
    path = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


@pytest.mark.process
@pytest.mark.usefixtures("no_flower")
def test_without_flower_what_needs_it_names_the_extra_and_the_rest_works(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("")
    for words in (["run", "--engine", "flower"], ["flower", "check", "node.toml"]):
        done = call(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert_sentence(done.stderr)
        assert "pip install 'noisemarket[flower]'" in done.stderr
    assert call("flower", "app", "app", cwd=tmp_path).returncode == 0
    assert (tmp_path / "app" / "pyproject.toml").exists()
