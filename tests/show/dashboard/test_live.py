"""What is told of a run that goes on: to many at once, whatever its files hold."""

from __future__ import annotations

import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisemarket.errors import BadInput
from noisemarket.market import events
from noisemarket.show.dashboard import live
from noisemarket.show.dashboard.live import RunProgress, RunReader
from noisemarket.show.dashboard.run_store import AnswerCache, RunStore, UnknownRun

pytestmark = pytest.mark.slow

STATUS = json.dumps({"state": "running", "kind": "run"})
KINDS = [*(name for name in vars(events) if name[0].isupper()), "begun", "failed", "negotiating"]
FIELDS = ["owners", "rounds", "agreed", "amount", "result", "done", "total", "trace", "head", "job"]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner),
    max_leaves=5,
)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK", 0.01)
    monkeypatch.setattr(live, "EASE", 0.0)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    folder = tmp_path / "runs" / "one" / "curator"
    folder.mkdir(parents=True)
    (folder.parent / "status.json").write_text(STATUS)
    write(folder / "events.jsonl", 1)
    return RunStore(tmp_path / "runs")


def write(path: Path, done: int, **more: Any) -> None:
    with path.open("a") as file:
        line = {"kind": "negotiating", "done": done, "total": 9, **more}
        file.write(json.dumps(line) + "\n")


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), ANY))))
def test_no_line_breaks_the_progress(lines: list[tuple[str, dict[str, Any]]]) -> None:
    progress = RunProgress()
    for kind, values in lines:
        progress.read(json.dumps({**values, "kind": kind}))
        progress.read_baseline(json.dumps({**values, "baseline": "no_dp", "draw": 1}))
    document = progress.document({"state": "running"}, None)
    json.dumps(document, allow_nan=False)
    assert document["progress"]["done"] == progress.done_of_total()[0]


def test_all_who_watch_share_one_look(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, path = RunReader(store, "one"), store.root / "one" / "curator" / "events.jsonl"
    looks, look = [], reader.look
    monkeypatch.setattr(reader, "look", lambda: looks.append(1) or look())
    monkeypatch.setattr(live, "LOOK", 0.3)
    with ThreadPoolExecutor(8) as pool:
        seen = [*pool.map(lambda _: reader.state(), range(8))]
    assert [one["progress"]["done"] for one in seen] == [1] * 8
    assert len(looks) == 1
    write(path, 4)
    time.sleep(0.4)
    assert reader.state()["progress"]["done"] == 4


def test_a_look_that_fails_is_told_and_tried_again(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = RunReader(store, "one")

    def broken() -> dict[str, Any]:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(reader, "look", broken)
        with pytest.raises(BadInput, match="Permission denied"):
            reader.state()
    assert reader.state()["state"] == "running"


def test_a_run_that_is_gone_can_come_back(store: RunStore) -> None:
    reader = RunReader(store, "one")
    reader.state()
    shutil.move(store.root / "one", store.root / "two")
    time.sleep(0.05)
    with pytest.raises(UnknownRun):
        reader.state()
    shutil.move(store.root / "two", store.root / "one")
    assert reader.state()["progress"]["done"] == 1


def test_the_points_of_a_game_are_told_until_it_is_over(store: RunStore) -> None:
    reader, path = RunReader(store, "one"), store.root / "one" / "curator" / "events.jsonl"
    assert reader.look()["learned"] is None
    trace = {"iteration": [50, 100], "saving": [0.1, 0.2], "payment": [3.0, 4.0]}
    write(path, 2, trace=trace)
    assert reader.look()["learned"] == trace
    write(path, 3)  # no new points: the last ones stay
    assert reader.look()["learned"] == trace
    write(path, 4, trace={**trace, "saving": [0.1]})  # damaged: passed over
    assert reader.look()["learned"] == trace
    over = {"kind": "Negotiated", "owners": 9, "agreed": 2, "over_budget": 0, "total": 1,
            "seconds": 1.0}  # fmt: skip
    with path.open("a") as file:
        file.write(json.dumps(over) + "\n")
    assert (reader.look()["learned"], reader.look()["agreed"]) == (None, 2)


def test_workers_that_start_are_named_where_nothing_moves() -> None:
    progress, status = RunProgress(), {"state": "running"}
    opened = {"kind": "Opened", "job": "j", "owners": 2, "rounds": 3, "budget": None,
              "resumed": False}  # fmt: skip
    progress.read(json.dumps(opened))
    signed = {"kind": "Signed", "contract": "c", "saving": 0.1, "sigma": 0.5, "payment": 1,
              "epsilon": 1.0, "delta": 1e-5}  # fmt: skip
    seen = []
    for owner in "ab":
        seen.append(progress.document(status, None)["step"])
        progress.read(json.dumps(signed | {"owner": owner}))
    seen.append(progress.document(status, None)["step"])
    progress.read_baseline(json.dumps({"rounds": 6}))
    seen.append(progress.document(status, None)["step"])
    assert seen == ["signing", "signing", "starting", "starting"]


def test_what_many_ask_for_is_computed_once() -> None:
    cache: AnswerCache[int] = AnswerCache(2)
    made, gate = [], threading.Event()

    def make() -> int:
        gate.wait(300)
        made.append(1)
        return len(made)

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(cache.get, "a", 1, make) for _ in range(8)]
        time.sleep(0.05)
        gate.set()
        assert [one.result() for one in answers] == [1] * 8
    assert cache.get("a", 1, make) == 1
    assert cache.get("a", 2, make) == 2  # what it was made of has changed
    for other in "bc":
        cache.get(other, 1, make)
    assert cache.get("a", 2, make) == 5  # no room was left for it


def test_an_error_is_not_cached() -> None:
    cache: AnswerCache[int] = AnswerCache(2)

    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.get("a", 1, fail)
    assert cache.get("a", 1, lambda: 7) == 7
