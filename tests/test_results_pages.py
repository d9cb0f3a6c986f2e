"""Pages and figures made from stored results are those of the results as they are stored."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PAGES = ROOT / "docs" / "explanation"
AGAIN = "run: make results"


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """What writes the pages."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield import_module("report")
    own = ("report", "results_page", "campaign", "best_settings")
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]


@pytest.fixture
def results(report: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the stored results, from which pages are made meanwhile."""
    shutil.copytree(ROOT / "benchmarks" / "results", tmp_path / "results")
    monkeypatch.setattr(sys.modules["results_page.common"], "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def change(path: Path, **values: Any) -> dict[str, Any]:
    document = json.loads(read(path))
    document.update(values)
    path.write_text(json.dumps(document), encoding="utf-8")
    return dict(document)


def test_the_best_settings_are_the_same_wherever_they_are_typed(report: ModuleType) -> None:
    """examples/campaign.toml has them; another example and a page cannot read them there."""
    learning = sys.modules["best_settings"].learning
    cnn = tomllib.loads(read(ROOT / "examples" / "frontier-cnn.toml"))
    assert [one["settings"] for one in cnn["compared"]] == [learning("dypp")]
    page = " ".join(read(PAGES / "learning.md").split())
    for mechanism in ("dypp", "q_learning"):
        words = [f"--set {name}={value:g}" for name, value in learning(mechanism).items()]
        assert f"`{' '.join(words)}`" in page


def test_the_pages_are_what_was_stored(report: ModuleType) -> None:
    assert report.page() == read(PAGES / "results.md"), AGAIN
    assert report.dypp_page() == read(PAGES / "dypp.md"), AGAIN
    readme = read(ROOT / "README.md")
    assert report.MARKED.search(readme) is not None
    assert report.readme(readme) == readme, AGAIN


def test_what_the_page_on_dypp_says_in_fixed_words_is_true(report: ModuleType) -> None:
    assert [claim for claim, holds in report.claims().items() if not holds] == []


def test_figures_are_drawn_from_what_is_stored(report: ModuleType) -> None:
    figures = sys.modules["results_page.figures"]
    made = figures.drawings()
    shown = set(re.findall(r"/images/([\w-]+)\.png", read(PAGES / "results.md")))
    shown |= set(re.findall(r"/images/([\w-]+)\.png", read(PAGES / "dypp.md")))
    assert shown == made.keys()
    for name in figures.SOURCES:
        path = IMAGES / f"{name}.png"
        assert path.exists() == (name in made), f"{name}: {AGAIN}"
        if name in made:
            assert figures.drawn_from(path) == figures.digest_of(name), f"{name}: {AGAIN}"


def test_another_result_makes_another_page_and_another_digest(
    report: ModuleType, results: Path
) -> None:
    figures = sys.modules["results_page.figures"]
    before, page = figures.digest_of("dypp-sensitivity"), report.page()
    other = figures.digest_of("frontier")
    document = json.loads(read(results / "sensitivity.json"))
    document["rows"][1]["dypp"][0] += 0.5
    change(results / "sensitivity.json", rows=document["rows"])
    assert report.page() != page
    assert figures.digest_of("dypp-sensitivity") != before
    assert figures.digest_of("frontier") == other


def test_a_figure_carries_its_digest(report: ModuleType, results: Path, tmp_path: Path) -> None:
    figures = sys.modules["results_page.figures"]
    path = tmp_path / "drawn.png"
    figures.keep_png(figures.drawings()["dypp-adaptation"], path, "abc")
    assert figures.drawn_from(path) == "abc"


def test_a_claim_that_becomes_false_is_noticed(report: ModuleType, results: Path) -> None:
    document = json.loads(read(results / "lying.json"))
    for row in document["rows"]:
        if row["mechanism"] == "clock":
            row["most"][0] = 0.3
    change(results / "lying.json", rows=document["rows"])
    assert not report.claims()["lying to the clock brings nothing"]


def test_what_is_not_stored_is_said_with_its_command(report: ModuleType, results: Path) -> None:
    for path in results.glob("*.json"):
        path.unlink()
    page = report.page()
    assert report.dypp_page() is None
    assert report.readme("as it was") == "as it was"
    for command in ("campaign.py", "campaign.py --no-floor", "frontier.py",
                    "cheats.py --poison", *(f"studies.py {name}" for name in
                    ("lying", "sensitivity", "adaptation", "fashion", "epsilon"))):  # fmt: skip
        assert f"Not measured yet: `python benchmarks/{command}` does." in page


# Parts whose results take hours: they render from results of the right shape


def test_rounds_are_drawn_where_they_were_kept(report: ModuleType, results: Path) -> None:
    figures = sys.modules["results_page.figures"]
    kept = [
        {"mechanism": name, "budget": 100.0, "mean": [80.0, end], "half_width": [0.5, 0.5]}
        for name, end in (("uniform", 90.0), ("clock", 94.0))
    ]
    change(results / "campaign-features.json", per_round=kept)
    assert "results-rounds.png" in report.page()
    assert "results-rounds" in figures.drawings()
    change(results / "campaign-features.json", per_round=[])
    assert "Accuracy over the rounds was not kept: `python benchmarks/campaign.py`" in report.page()
    assert "results-rounds" not in figures.drawings()


def test_the_campaign_keeps_means_of_the_rounds(report: ModuleType) -> None:
    stored = json.loads(read(ROOT / "benchmarks" / "results" / "campaign-features.json"))
    rows = [
        {**row, "accuracy_per_round": [50.0, row["accuracy"]]}
        for row in stored["rows"]
        if row["seed"] <= 2
    ]
    text = import_module("campaign").compact({**stored, "rows": rows, "same_contracts": []})
    short = json.loads(text)
    assert "accuracy_per_round" not in short["rows"][0]
    assert "same_contracts" not in short
    assert len(short["per_round"]) == 9 * 3
    assert short["per_round"][0]["mean"][0] == 50.0


def test_the_cnn_has_a_part_like_the_campaign(report: ModuleType, results: Path) -> None:
    document = json.loads(read(results / "campaign-features.json"))
    names = ("uniform", "clock", "bisection", "dypp", "best_portfolio")
    rows = [row for row in document["rows"] if row["mechanism"] in names and row["seed"] <= 2]
    shutil.copy(results / "campaign-features.json", results / "frontier-cnn.json")
    change(results / "frontier-cnn.json", rows=rows, model="cnn")
    part = report.page().partition("## The same on the CNN")[2].partition("\n## ")[0]
    assert "results-cnn.png" in part
    assert "model `cnn`, 2 seeds" in part
    assert "With 100 the clock auction brings" in part
    assert "results-cnn" in sys.modules["results_page.figures"].drawings()


def test_a_resumed_campaign_gives_seconds_of_training_alone(
    report: ModuleType, results: Path
) -> None:
    made_by = sys.modules["results_page.common"].made_by
    said = {"command": "noisemarket compare", "date": "d", "machine": "m"}
    resumed = made_by({**said, "training_cpu_seconds": 798.0})
    assert resumed.endswith("(m; trainings took 798 processor seconds).")
    whole = made_by({**said, "training_cpu_seconds": 798.0, "seconds": 500.0, "cpu_seconds": 9.0})
    assert "trainings took 798 processor seconds, 500 s wall clock in one go" in whole


def test_cheats_have_a_part(report: ModuleType, results: Path) -> None:
    lists = {"found": [0, 1], "unpaid": [0, 3], "unpaid_sellers": [0, 2]}
    none = {"share": 0.0, "cheat": "-", "cheats": 0, "sellers": 0, "accuracies": [95.0, 94.0],
            "found": [0, 0], "unpaid": [0, 0], "unpaid_sellers": [0, 0]}  # fmt: skip
    bad = {"share": 0.2, "cheats": 4, "sellers": 2, "accuracies": [10.0, 90.0], **lists}
    document = {
        "command": "python benchmarks/cheats.py --poison", "date": "d", "machine": "m",
        "owners": 20, "rounds": 2, "defences": ["no checks", "checks"],
        "rows": [none, {**bad, "cheat": "flip"}, {**bad, "cheat": "free_rider"}],
    }  # fmt: skip
    (results / "cheats.json").write_text(json.dumps(document), encoding="utf-8")
    part = report.page().partition("## Poisoners and free riders")[2]
    assert "| none |  | 95.0 | 94.0 |" in part
    assert "| 4 of 20 | `flip` | 10.0 | 90.0 (1, 2) |" in part
    assert "|  | of those that sold, paid | 2 of 2 | 0 of 2 |" in part
    assert "|  | of the others, paid | 2 of 2 | 1 of 2 |" in part
    assert "10.0 % by `flip` (no checks) and 90.0 % by `flip` (checks)" in part


def test_studies_that_train_have_parts(report: ModuleType, results: Path) -> None:
    case = {"paid": 90.0, "sellers": 4, "epsilon_sold": 30.0}
    rows = [
        {"mechanism": name, "budget": budget, "seed": seed, "accuracy": 80.0 + seed + more, **case}
        for name, more in (("uniform", 0.0), ("clock", 2.0), ("dypp", 1.0))
        for budget in (100.0, 300.0)
        for seed in (1, 2, 3)
    ]
    said = {"command": "python x", "date": "d", "machine": "m", "seeds": 3, "rows": rows}
    by_sigma = [{"sigma": 0.6, "accuracies": [80.0, 81.0, 82.0]}]
    for name, more in (("fashion", {"by_sigma": by_sigma}), ("epsilon", {"floor": 0.2})):
        (results / f"{name}.json").write_text(json.dumps({**said, **more}), encoding="utf-8")
    page = report.page()
    assert page.count("| 100 | clock auction | 90 | 4.0 | 30 | 84.00 ± 2.48 | +2.00 ± 0.00 |") == 2
    assert "| 0.6 | 81.00 ± 2.48 |" in page


def test_accuracy_over_noise_is_that_of_the_measured_surface(report: ModuleType) -> None:
    """README and the page on features quote the means of the trainings that calibration kept."""
    accuracy_of = sys.modules["results_page.accuracy"].accuracy_of
    means = {
        sigma: sum(found := accuracy_of("features-mnist", sigma, 1.0)) / len(found)
        for sigma in (0.6, 0.45, 0.3, 0.2, 0.1, 0.05, 0.0)
    }
    readme = read(ROOT / "README.md")
    for sigma in (0.05, 0.3, 0.6):
        assert re.search(rf"{means[sigma]:.1f} %[^,;:]*at\s+(?:sigma )?{sigma:g}\b", readme), sigma
    (row,) = re.findall(r"^\| MNIST, beta 1 \|.*$", read(PAGES / "features.md"), re.MULTILINE)
    shown = [float(cell.split("±")[0]) for cell in row.split("|")[2:-1]]
    assert shown == [round(mean, 1) for mean in means.values()]
