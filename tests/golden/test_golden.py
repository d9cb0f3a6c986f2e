"""Runs come to the same as before, bit by bit: contracts, ledger, metrics, models, messages.

If a change is meant, ``python -m tests.golden --write`` rewrites the golden files, and the commit
says why they changed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tests.golden import comparing, recording
from tests.golden.cases import ALONE, FLOWER, records

pytestmark = [pytest.mark.process, pytest.mark.training]


@pytest.mark.parametrize("case", ALONE)
def test_a_run_comes_to_the_same(case: str, tmp_path: Path) -> None:
    if case == "paper":
        pytest.importorskip("torch", reason="needs the extra cnn: pip install 'noisemarket[cnn]'")
    check(case, tmp_path)


def test_a_run_over_flower_comes_to_the_same_by_the_same_messages(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="needs the extra flower: pip install 'noisemarket[flower]'")
    check(FLOWER, tmp_path)


def check(case: str, folder: Path) -> None:
    found = {name: comparing.complaint(name, one) for name, one in records(case, folder).items()}
    told = "\n".join(f"{name}.json\n{differ}" for name, differ in found.items() if differ)
    assert not told, f"\n{told}\nIf this is meant: python -m tests.golden --write {case}"


def test_another_seed_is_noticed(tmp_path: Path) -> None:
    other = recording.run("auction", tmp_path, seed=14)
    other["made_on"] = comparing.read("auction")["made_on"]
    found = comparing.differences(comparing.read("auction"), other)
    assert {path.partition(".")[0].partition("[")[0] for path, _, _ in found} >= {
        "ledger", "metrics", "summary", "model",
    }  # fmt: skip
    shown = comparing.complaint("auction", other).splitlines()
    assert len(shown) == comparing.MOST_SHOWN + 1


def test_the_last_bit_of_a_number_is_noticed() -> None:
    record = comparing.read("clock")
    assert comparing.complaint("clock", record) == ""
    loss = record["metrics"][0]["score"]["loss"]
    above = math.nextafter(loss, math.inf)
    record["metrics"][0]["score"]["loss"] = above
    path = "metrics[0].score.loss"
    assert comparing.complaint("clock", record) == f"{path}: {loss!r} -> {above!r}"
    record["made_on"] = "another machine"
    assert comparing.complaint("clock", record) == ""


def test_the_same_scenario_came_to_the_same_over_flower() -> None:
    here, there = comparing.read("clock"), comparing.read(FLOWER)
    both = [{key: one for key, one in record.items() if key in there} for record in (here, there)]
    del both[1]["uploads"]
    assert list(comparing.differences(*both)) == []


def test_golden_files_are_small() -> None:
    sizes = [path.stat().st_size for path in comparing.EXPECTED.glob("*.json")]
    assert 0 < sum(sizes) < 400_000
    for path in comparing.EXPECTED.glob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
