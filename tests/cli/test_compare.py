"""``noisemarket compare`` as a user meets it, on a few images of MNIST: killed and resumed."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.commands import PATIENCE, call_here, command, has_lines, wait_until
from tests.market.common import write_images

from noisemarket.show.comparison_report import trained_table

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent.parent
MECHANISMS = "clock,greedy,equilibrium"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    images = write_images(tmp_path_factory.mktemp("mnist"))
    given = {"owners": 4, "data_size": 30, "rounds": 3, "iterations": 50,
             "surface": "printed", "data": images, "currency": "EUR"}  # fmt: skip
    pairs = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    return [*pairs, "--mechanisms", MECHANISMS, "--seeds", "3", "--budgets", "20,none",
            "--workers", "1"]  # fmt: skip


Done = tuple[Path, dict[str, Any], str]


@pytest.fixture(scope="module")
def done(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Begun, killed while it trains, and resumed to the end."""
    folder = tmp_path_factory.mktemp("compare")
    run = [*words, "--out", "r"]
    with subprocess.Popen(
        command("compare", *run), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        wait_until(lambda: has_lines(folder / "r" / "trainings.jsonl", 2), process, 0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
    before = (folder / "r" / "trainings.jsonl").read_text()
    resumed = call_here("compare", "--resume", "r", "--json", "--workers", "1", cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    after = (folder / "r" / "trainings.jsonl").read_text()
    assert after.startswith(before[: before.rindex("\n") + 1]), "nothing is trained twice"
    return folder / "r", json.loads(resumed.stdout), resumed.stderr


def test_a_comparison_leaves_everything_in_its_folder(done: Done) -> None:
    folder, document, said = done
    assert {path.name for path in folder.iterdir()} == {
        "scenario.toml", "status.json", "plan.json", "trainings.jsonl", "comparison.json",
        "comparison.csv", "figures",
    }  # fmt: skip
    stems = ("frontier", "rounds")
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{stem}.{ending}" for stem in stems for ending in ("png", "svg")
    }
    assert json.loads((folder / "comparison.json").read_text()) == document
    assert json.loads((folder / "status.json").read_text())["state"] == "complete"
    keys = [json.loads(line) for line in (folder / "trainings.jsonl").read_text().splitlines()]
    assert len({(one["seed"], one["noise"]) for one in keys}) == len(keys)
    assert f"trained {len(keys)} of {len(keys)}" in said
    assert len(document["rows"]) == 4 * 2 * 3
    assert len(document["means"]) == 4 * 2
    assert len(document["differences"]) + len(document["same_contracts"]) == 6 * 2
    assert document["same_contracts"]
    assert document["training_cpu_seconds"] > 0
    assert not {"seconds", "cpu_seconds"} & document.keys(), "it was resumed"
    with (folder / "comparison.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(row["accuracy"]) for row in table] == [
        row["accuracy"] for row in document["rows"]
    ]


def test_every_json_key_is_documented(done: Done) -> None:
    page = (ROOT / "docs" / "reference" / "output.md").read_text(encoding="utf-8")
    part = page.partition("\n## JSON of compare\n")[2].partition("\n## ")[0]
    assert part
    document = done[1]
    keys = {*document, *document["rows"][0], *document["differences"][0]}
    assert {key for key in keys if f"`{key}`" not in part} == set()


def test_a_finished_comparison_trains_nothing_again(done: Done, tmp_path: Path) -> None:
    folder = shutil.copytree(done[0], tmp_path / "r")
    before = (folder / "trainings.jsonl").read_bytes()
    again = call_here("compare", "--resume", "r", "--workers", "1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (folder / "trainings.jsonl").read_bytes() == before
    for words in ("Mechanisms on the same owners and data, means of 3 seeds", "no limit",
                  "With a budget of 20, accuracy of the clock auction",
                  "it was complete already"):  # fmt: skip
        assert words in again.stdout


def test_one_seed_is_no_plural(done: Done) -> None:
    titles = [
        trained_table(
            {**done[1], "means": [{**row, "seeds": count} for row in done[1]["means"]]}
        ).title
        for count in (1, 3)
    ]
    assert [str(title).rpartition("means of ")[2] for title in titles] == [
        "1 seed; money in EUR", "3 seeds; money in EUR",
    ]  # fmt: skip


def test_a_plan_without_its_command_is_resumed(done: Done, tmp_path: Path) -> None:
    folder = shutil.copytree(done[0], tmp_path / "r")
    plan = json.loads((folder / "plan.json").read_text())
    del plan["command"]
    (folder / "plan.json").write_text(json.dumps(plan))
    again = call_here("compare", "--resume", "r", "--json", "--workers", "1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["command"] == ""
