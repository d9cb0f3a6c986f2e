"""``noisemarket run`` in this process: what it says, and what it does when resumed."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.small_jobs import fails, run_words
from tests.market.common import here as run_here
from tests.market.common import write_images

from noisemarket.cli import main
from noisemarket.errors import BadInput, Interrupted
from noisemarket.market import job

RUN_MARKET = job.run_market
pytestmark = pytest.mark.training

ROOT = Path(__file__).resolve().parent.parent.parent
SURFACES = ROOT / "src" / "noisemarket" / "scenario" / "surfaces"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("mnist"))


@pytest.mark.usefixtures("undrawn")
def test_broken_contracts_are_told(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    faults = [{"owner": "1", "kind": "huge"}]
    monkeypatch.setattr("noisemarket.market.job.run_market", partial(run_here, faults=faults))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main([*run_words(images, rounds=1), "--no-baselines", "--out", "r"])
    out, said = capsys.readouterr()
    assert not end.value.code, said
    assert "Owner 1 broke its contract: too much noise." in out
    assert "Owner 1, round 1: too much noise; refused." in out + said
    assert "3, 1" in out  # kept, broken
    assert "Run folder: r" in out
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["broken"] == {"1": "too much noise"}
    assert summary["uniform_dp_accuracy"] is None


def here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """A run in this process: its code, and what it says."""
    if job.run_market is RUN_MARKET:
        monkeypatch.setattr(job, "run_market", run_here)
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--no-baselines"])
    out, said = capsys.readouterr()
    return int(end.value.code or 0), out, said


@pytest.mark.usefixtures("undrawn")
def test_a_budget_is_kept(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    given = [*run_words(images, rounds=1), "--json"]
    paid = {}
    for budget in ("0", "20", "none"):
        more = ["--budget", budget, "--out", f"r{budget}"]
        code, out, said = here(monkeypatch, capsys, *given, *more)
        assert code == 0, said
        summary = json.loads(out)
        paid[budget] = summary["total_paid"]
        assert summary["alternatives"] == [], "without baselines nothing is compared"
    assert paid["0"] == 0 < paid["20"] <= 20 < paid["none"]


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_buys_nothing_says_why(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    dear = run_words(images, rounds=1, privacy_cost=50.0)
    code, out, said = here(monkeypatch, capsys, *dear, "--out", "dear")
    assert code == 0, said
    assert "No trade pays: the cheapest owner asks" in out
    cheap = run_words(images, rounds=1)
    code, out, said = here(monkeypatch, capsys, *cheap, "--budget", "0", "--out", "poor")
    assert code == 0, said
    assert "The budget of 0 units pays for none of 4 deals." in out


def test_names_are_shown_as_they_are(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(
        "owner,privacy_cost,data_size,beta,markup\n[/b],2,40,1,0.2\n[red]x,3,40,1,0.2\n"
    )
    faults = [{"owner": name, "kind": "huge"} for name in ("[/b]", "[red]x")]
    monkeypatch.setattr(job, "run_market", partial(run_here, faults=faults))
    given = [*run_words(images, rounds=1, file="people.csv"), "--out", "[/i]"]
    code, out, said = here(monkeypatch, capsys, *given)
    assert code == 0, said
    for name in ("[/b]", "[red]x"):
        assert f"Owner {name} broke its contract: too much noise." in out
        assert f"Owner {name}, round 1: too much noise; refused." in out + said
    assert "Run folder: [/i]" in out
    assert "noisemarket ledger ls [/i]" in out
    assert "[/i]/figures/market.png" in out


@pytest.mark.usefixtures("undrawn")
def test_resumed_before_the_job_was_opened(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """With a surface of its own, and killed when only the first files were there."""
    monkeypatch.chdir(tmp_path)
    surface = SURFACES / "sharded-mnist.toml"
    given = run_words(images, rounds=1, owners=2, surface=str(surface))
    code, _, said = here(monkeypatch, capsys, *given, "--out", "r")
    assert code == 0, said
    started = json.loads(Path("r/status.json").read_text())["started"]
    for path in Path("r").iterdir():
        if path.name not in ("scenario.toml", "surface.toml", "status.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    code, _, said = here(monkeypatch, capsys, "run", "--resume", "r")
    assert code == 0, said
    status = json.loads(Path("r/status.json").read_text())
    assert (status["state"], status["started"]) == ("complete", started)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("begun", "resumed", "compared"),
    [("--no-baselines", [], False), ("--no-baselines", ["--baselines"], True),
     ("--baselines", ["--no-baselines"], False)],
)  # fmt: skip
def test_a_resumed_run_compares_what_it_began_with(
    begun: str, resumed: list[str], compared: bool, images: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    def stopped(*_: object, **__: object) -> Any:
        raise Interrupted("stopped.")

    def reached(*_: object, **__: object) -> Any:
        asked.append("baselines")
        raise Interrupted("reached.")

    runs = iter([stopped, run_here])
    monkeypatch.setattr(
        "noisemarket.market.job.run_market", lambda *given, **more: next(runs)(*given, **more)
    )
    monkeypatch.setattr("noisemarket.cli.run._baselines", reached)
    given = run_words(images, rounds=1, owners=2, model="features")
    for words_ in ([*given, begun, "--out", "r"], ["run", "--resume", "r", *resumed]):  # fmt: skip
        with pytest.raises(SystemExit) as end:
            main(words_)
    assert end.value.code == (130 if compared else 0), capsys.readouterr().err
    assert asked == ["baselines"] * compared
    assert json.loads(Path("r/status.json").read_text())["baselines"] is compared


def stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine stop before it does anything."""

    def stopped(*_: object, **__: object) -> Any:
        raise Interrupted("stopped.")

    monkeypatch.setattr("noisemarket.market.job.run_market", stopped)


@pytest.mark.parametrize(("noted", "draws"), [(3, 3), (None, 2), (0, 2), (True, 2), ("3", 2)])
def test_a_status_without_draws_means_the_default_of_the_model(
    noted: object, draws: int, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    stops(monkeypatch)
    given = run_words(images, owners=2, model="features")
    assert here(monkeypatch, capsys, *given, "--out", "r")[0] == 130
    status = Path("r/status.json")
    status.write_text(json.dumps(json.loads(status.read_text()) | {"draws": noted}))
    assert here(monkeypatch, capsys, "run", "--resume", "r")[0] == 130
    assert json.loads(status.read_text())["draws"] == draws


def test_a_run_that_cannot_be_resumed_is_not_called_running(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def refused(scenario: object) -> Any:
        raise BadInput("owners", 2, "are too few.")

    monkeypatch.chdir(tmp_path)
    stops(monkeypatch)
    assert here(monkeypatch, capsys, *run_words(images, owners=2), "--out", "r")[0] == 130
    before = Path("r/status.json").read_text()
    monkeypatch.setattr("noisemarket.market.orders.prepare", refused)
    assert "are too few" in fails(["run", "--resume", "r"], capsys)
    assert Path("r/status.json").read_text() == before


@pytest.mark.usefixtures("undrawn")
def test_a_run_goes_on_with_its_engine(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Also one that was stopped before the ServerApp had written anything."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    def stopped(market: object, folder: Path, **_: object) -> Any:
        status = json.loads((folder / "status.json").read_text())
        asked.append(status["engine"])
        assert status["state"] == "running"
        raise Interrupted("stopped.")

    monkeypatch.setattr("noisemarket.flower.simulation.run_simulation", stopped)
    given = [
        *run_words(images, mechanism="dypp", iterations=400),
        "--engine",
        "flower",
        "--out",
        "r",
    ]
    for arguments in (given, ["run", "--resume", "r"], ["run", "--resume", "r"]):
        code, _, said = here(monkeypatch, capsys, *arguments)
        assert (code, "continue with --resume r" in said) == (130, True)
        status = json.loads(Path("r/status.json").read_text())
        assert (status["state"], status["engine"]) == ("incomplete", "flower")
    assert asked == ["flower"] * 3
    Path("r/market.json").write_text("{}")
    said = fails(["run", "--resume", "r", "--engine", "embedded"], capsys)
    assert "job started with flower" in said
