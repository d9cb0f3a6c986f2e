"""Every benchmark can be imported; peers are measured in environments of their own."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from benchmarks import federated, game
from benchmarks.results_page import common

from noisemarket.machine import Effort

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
MODULES = sorted(
    ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts)
    for path in FOLDER.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py") and path.parent.name != "peers"
)


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(name)


@pytest.mark.compiled
def test_a_quick_look_at_the_game_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["game", "--quick"])
    game.main()
    assert "paper, settled" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_what_is_stored_says_how_when_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    asked = ("game", "First line.\nSecond.", "python -m benchmarks game", Effort(), {"rounds": 5})
    assert common.keep(*asked, store=False)["rounds"] == 5
    assert common.stored("game") is None
    assert common.keep(*asked) == common.stored("game")
    document = json.loads((tmp_path / "game.json").read_text(encoding="utf-8"))
    assert {"what", "command", "date", "machine", "rounds"} <= document.keys()


def test_the_table_of_training_has_medians_and_says_who_failed() -> None:
    def made(first: float, *rounds: float) -> federated.Run:
        return federated.Run([9.0, *rounds], first, [{"round": 1}, {"accuracy": 80.0}])

    runs = {
        "flower": [made(12.0, 6.0, 6.0, 7.0)],
        "ours": [made(4.0, 2.0, 4.0, 2.5), made(6.0, 3.5, 3.0, 3.0)],
        "pfl": [made(1.0, 1.0), federated.Run(problem="No module named 'pfl'")],
    }
    found = {
        "contestants": federated.measured(runs), "turns": 2, "rounds": 4, "peak_mb": 1510,
        "many": {"owners": 1000, "seconds_a_round": 5.25, "peak_mb": 2670},
        "command": "python -m benchmarks federated", "date": "2030-01-01", "machine": "2 cores",
    }  # fmt: skip
    _, _, ours, flower, pfl, _, *words = federated.markdown(found).splitlines()
    assert ours.endswith("| 3.00 | 1.00 | 5.0 | 80.0 |")
    assert flower.endswith("| 6.00 | 2.00 | 12.0 | 80.0 |")
    assert pfl.endswith("| not run: No module named 'pfl' |  |  |  |")
    assert "2 turns of 4 rounds" in words[0]


def test_the_table_of_the_game_has_only_what_ran_beside_openspiel() -> None:
    row = {"setting": "paper, settled", "noisemarket_per_cpu_second": 8.04e6}
    beside = row | {"open_spiel_per_cpu_second": 6700.4, "ratio": 1200.0}
    found = {
        "throughput": [row | {"setting": "market"}, beside], "rounds": 3, "open_spiel": "2.0",
        "command": "python -m benchmarks game", "date": "2030-01-01", "machine": "2 cores",
    }  # fmt: skip
    _, _, line, _, *words = game.markdown(found).splitlines()
    assert line == "| paper, settled | 8.0 million | 6,700 | 1,200 |"
    assert words[0].startswith("Best of 3 rounds")
