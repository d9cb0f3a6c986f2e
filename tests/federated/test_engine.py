"""The embedded engine, where it is like no other: its workers, and nothing left behind, ever."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.commands import PATIENCE
from tests.federated.odd_parts import Diverging, Endless, FailingMaker, Halting
from torch import nn

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated import engine as engines
from noisemarket.federated.data import Dataset
from noisemarket.federated.engine import Job
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.linear import LinearMaker, LinearModel
from noisemarket.federated.models.model import ModelMaker
from noisemarket.federated.models.torch_model import TorchMaker
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import Paper, PerRecord, Protection, Sharded
from noisemarket.federated.rounds import screen
from noisemarket.market import training
from noisemarket.market.training import LocalEngine

pytestmark = pytest.mark.process

SIZES = (5, 120, 30, 45)  # uneven
LINEAR = LinearMaker(4, 36)
"""The model of all jobs here that start workers: they need seconds to load torch."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(36, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.out(images.flatten(1))
        return made


def data() -> Dataset:
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (200, 36), dtype=np.uint8)
    tests = rng.integers(0, 256, (1500, 36), dtype=np.uint8)
    return Dataset.of(images, np.arange(200) % 4, tests, np.arange(1500) % 4)


def job(
    model: ModelMaker | None = None,
    noise: str = "simulated",
    protection: Protection | None = None,
) -> Job:
    order = np.random.default_rng(3).permutation(200)
    parts = np.split(order, np.cumsum(SIZES)[:-1])
    partition = Partition(tuple(np.sort(part) for part in parts))
    made = protection or Sharded(records_per_shard=6, clip=0.5, steps=2, rate=0.2)
    sigma = np.array([0.1, 0.2, 0.0, 0.3])
    return Job(data(), partition, model or LINEAR, made, sigma, 7, noise)  # type: ignore[arg-type]


def named_memory(*processes: int) -> set[str]:
    """Shared memory that anybody can find: mapped by these processes, or named after them."""
    found = set()
    for pid in processes:
        found |= {path.name for path in Path("/dev/shm").glob(f"*-{pid}-*")}
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
            found |= {line for line in maps if re.search("/dev/shm/[^/ ]+$", line)}
    return found


@pytest.fixture(autouse=True)
def _nothing_left():  # type: ignore[no-untyped-def]
    before = named_memory(os.getpid())  # libraries that other tests import may have some
    yield
    assert multiprocessing.active_children() == []
    assert named_memory(os.getpid()) <= before


def test_workers_are_no_more_than_owners_and_uploads_outlive_them() -> None:
    one = Partition((np.arange(200),))
    engine = LocalEngine(replace(job(), partition=one, sigma=np.array([0.1])), 50)
    assert len(engine._processes.running) == 1
    upload = engine.train(1, engine.first_weights(), [0])[0]
    assert upload is not None
    kept = upload.copy()
    engine.close()
    assert np.array_equal(upload, kept)


def test_products_of_records_count_against_what_a_worker_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of owners with 120, 45, 30 and 5 records, the first and the last fit."""
    made, records = list[int](), LinearModel.records

    def seen(self: LinearModel, inputs: Any, labels: Any) -> Any:
        made.append(len(labels))
        return records(self, inputs, labels)

    monkeypatch.setattr(LinearModel, "records", seen)
    monkeypatch.setattr(training, "MOST_KEPT", 120 * 8 + 100)
    engine = training.SerialEngine(job(protection=PerRecord()))
    for _ in range(3):
        engine.train(1, engine.first_weights(), range(4))
    assert made == [120, 45, 30, 5, 45, 30, 45, 30]


def test_a_model_that_fails_ends_in_one_sentence() -> None:
    with LocalEngine(job(FailingMaker(4, 36)), 2) as engine:
        with pytest.raises(NoisemarketError, match="RuntimeError: no luck") as problem:
            engine.train(1, engine.first_weights(), [0, 1, 2, 3])
        assert "\n" not in str(problem.value)


def test_owners_that_diverge_are_refused_and_the_others_count() -> None:
    with LocalEngine(job(protection=Diverging()), 1) as engine:
        first = engine.first_weights()
        for number in (1, 2):
            made = engine.train(number, first, [0, 1, 2, 3])
            good, refused = screen(made, engine.first_weights().size)
            assert refused == ((0, "not finite"), (1, "not finite"))
            assert set(good) == {2, 3}
            assert (good[2] == 1.0).all()  # sigma 0


def test_a_model_that_has_diverged_is_trained_and_scored_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with LocalEngine(job(protection=Paper(16, 0.1, 1)), 1) as engine:
        lost = np.full(engine.first_weights().size, 1e300)
        assert screen(engine.train(1, lost, [0, 3]), engine.first_weights().size)[0] == {}
        assert not np.isfinite(engine.score(lost).loss)
    assert capfd.readouterr() == ("", "")


class TestKeyedNoise:
    """Noise under a key serves for one update only: all that the update follows from counts."""

    def name(self, given: Job | None = None, **changes: object) -> str:
        key = bytes(range(32))
        made = replace(given or job(TorchMaker(Net), "secure"), noise_key=key, **changes)  # type: ignore[arg-type]
        return made.noise_source().stream(0, 0).release_id()

    def test_it_is_the_same_for_the_same_job(self) -> None:
        assert self.name() == self.name()
        net = Net()
        again = Net()
        again.load_state_dict(net.state_dict())
        ours, theirs = (TorchMaker(partial(copy.deepcopy, one)) for one in (net, again))
        assert self.name(model=ours) == self.name(model=theirs)
        assert self.name(model=LinearMaker(4, 36)) == self.name(model=LinearMaker(4, 36))

    def test_whatever_an_update_follows_from_makes_it_another(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = job(TorchMaker(Net), "secure")
        less, swapped = plain.data.train_images.copy(), list(plain.partition.indices)
        less[7] ^= 1
        swapped[0], swapped[2] = swapped[2], swapped[0]
        names = [
            self.name(),
            self.name(seed=8),
            self.name(sigma=plain.sigma + 1e-9),
            self.name(protection=Sharded(records_per_shard=6, clip=0.5, steps=3, rate=0.2)),
            self.name(protection=Paper()),
            self.name(model=TorchMaker(partial(CNN, (2, 3), 8))),
            self.name(model=TorchMaker(partial(copy.deepcopy, Net()))),
            self.name(model=TorchMaker(partial(copy.deepcopy, Net()))),  # of other weights
            self.name(model=LinearMaker(4, 36)),
            self.name(model=LinearMaker(36, 4)),
            self.name(data=replace(plain.data, train_images=less)),
            self.name(data=replace(plain.data, scaling=(0.0, 1.0))),
            self.name(partition=replace(plain.partition, indices=tuple(swapped))),
        ]
        monkeypatch.setattr(engines, "__version__", "0.9")
        names.append(self.name())
        monkeypatch.setattr(torch, "__version__", "99.0")
        names.append(self.name())
        assert len(set(names)) == len(names)

    def test_workers_make_it_again_under_the_same_key(self) -> None:
        made = []
        for key in (1, 1, 2):
            keyed = replace(job(noise="secure"), noise_key=bytes([key] * 32))
            with LocalEngine(keyed, 1) as engine:
                made.append(engine.train(1, engine.first_weights(), [0])[0])
        assert np.array_equal(made[0], made[1])
        assert not np.array_equal(made[0], made[2])


def test_after_a_failure_no_stale_answer_is_taken_for_a_new_one() -> None:
    """A slow worker's answer is still on its way when another one's failure is reported."""
    with LocalEngine(job(protection=Halting()), 2) as engine:
        first = engine.first_weights()
        engine.train(1, first, [2, 3])  # now both workers have started
        with pytest.raises(NoisemarketError, match="too few"):
            engine.train(1, first, [0, 1])
        try:
            made = engine.train(2, first, [1, 2])
        except NoisemarketError:
            return  # to refuse is as good
        for upload in made.values():
            assert upload is not None
            assert (upload == 2.0).all()


def test_a_model_that_cannot_be_trained_starts_nothing() -> None:
    with pytest.raises(BadInput):
        LocalEngine(job(TorchMaker(partial(nn.BatchNorm1d, 4))), 2)


def test_a_worker_killed_before_a_round() -> None:
    with LocalEngine(job(), 2) as engine:
        first = engine.first_weights()
        engine.train(1, first, [0, 1])
        os.kill(engine._processes.running[0].pid, signal.SIGKILL)
        engine._processes.running[0].join()
        with pytest.raises(NoisemarketError, match="died"):
            engine.train(2, first, [0, 1, 2, 3])


def test_a_worker_killed_while_it_starts_or_trains() -> None:
    with LocalEngine(job(), 2) as engine:
        os.kill(engine._processes.running[0].pid, signal.SIGKILL)
        with pytest.raises(NoisemarketError, match="died"):
            engine.train(1, engine.first_weights(), [0, 1, 2, 3])


def test_a_round_under_way_is_dropped_when_asked() -> None:
    looks = iter([False, False, True])
    engine = LocalEngine(job(protection=Endless()), 2, stop=lambda: next(looks, True))
    with pytest.raises(Interrupted, match=r"^stopped; what was finished is kept\.$"):
        engine.train(1, engine.first_weights(), [0, 1, 2, 3])
    assert not engine._processes.running
    with pytest.raises(NoisemarketError, match="closed"):
        engine.score(engine.first_weights())


def test_what_cannot_be_sent_to_a_worker_is_refused_with_a_remedy() -> None:
    class Local(Net):
        pass

    class Mine(Halting):
        pass

    for model in (Local, lambda: Net(), partial(Local)):
        with pytest.raises(BadInput, match=r"^model .*top level of a file"):
            LocalEngine(job(TorchMaker(model)), 1)
    with pytest.raises(BadInput, match=r"^protection .*Mine.*top level of a file"):
        LocalEngine(job(protection=Mine()), 1)


HEAD = """
import os, sys, time
import numpy as np
from noisemarket.federated.data import Dataset
from noisemarket.federated.engine import Job
from noisemarket.market.training import LocalEngine
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import Sharded

class Endless(Sharded):
    def upload(self, *_):
        os.write(1, b"working\\n")  # in one piece: two workers write to one pipe
        time.sleep(600)

def start(protection):
    images, labels = np.zeros((20, 36), np.uint8), np.arange(20) % 10
    parts = Partition(tuple(np.split(np.arange(20), 2)))
    data = Dataset.of(images, labels, images, labels)
    return LocalEngine(Job(data, parts, LinearMaker(10, 36), protection, np.ones(2), 1), 2)
"""

IDLE = """
if __name__ == "__main__":
    engine = start(Sharded(4))
    print(*(worker.pid for worker in engine._processes.running), flush=True)
    time.sleep(600)
"""

BUSY = """
if __name__ == "__main__":
    engine = start(Endless(4))
    print(*(worker.pid for worker in engine._processes.running), flush=True)
    engine.train(1, engine.first_weights(), [0, 1])
"""

UNGUARDED = """
from noisemarket.errors import NoisemarketError
try:
    engine = start(Sharded(4))
    engine.train(1, engine.first_weights(), [0, 1])
except NoisemarketError as problem:
    print(problem)
"""


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.stdout.count("\n") == 1
    assert "put the call under if __name__ == '__main__'" in done.stdout
    assert done.stderr == ""


@contextlib.contextmanager
def held(script: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a script, in a group of its own; if a test fails, all of it is killed."""
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, **variables},
    ) as main:  # fmt: skip
        try:
            yield main
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(main.pid, signal.SIGKILL)
            raise


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("rest", [IDLE, BUSY], ids=["idle", "busy"])
def test_a_killed_parent_leaves_no_worker_and_no_memory(tmp_path: Path, rest: str) -> None:
    script = tmp_path / "holder.py"
    script.write_text(HEAD + rest)
    with held(script) as main:
        assert main.stdout is not None
        workers = [int(word) for word in main.stdout.readline().split()]
        assert len(workers) == 2
        if rest is BUSY:
            assert [main.stdout.readline() for _ in range(2)] == ["working\n"] * 2
        assert all(running(pid) for pid in workers)
        assert named_memory(main.pid, *workers) == set()
        main.kill()
        main.wait()
    end = time.monotonic() + PATIENCE
    while any(running(pid) for pid in workers):
        assert time.monotonic() < end, "a worker outlives its parent"
        time.sleep(0.1)
    assert named_memory(main.pid) == set()


@pytest.mark.skipif(sys.platform == "win32", reason="groups of POSIX")
@pytest.mark.process
def test_a_killed_group_leaves_no_record_of_anybody(tmp_path: Path) -> None:
    """All processes die at once, so nobody can clean up: there must be nothing to clean."""
    script, temporary = tmp_path / "holder.py", tmp_path / "tmp"
    temporary.mkdir()
    script.write_text(HEAD + BUSY)
    with held(script, TMPDIR=str(temporary)) as main:
        assert main.stdout is not None
        workers = [int(word) for word in main.stdout.readline().split()]
        assert [main.stdout.readline() for _ in range(2)] == ["working\n"] * 2
        assert named_memory(main.pid, *workers) == set()
        os.killpg(main.pid, signal.SIGKILL)
        main.wait()
    end = time.monotonic() + PATIENCE
    while any(running(pid) for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert named_memory(main.pid, *workers) == set()
    assert not [path for path in temporary.rglob("*") if path.is_file()]
