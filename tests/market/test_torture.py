"""The crash campaign in small, and that it notices what it looks for."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest
from tests.ledger.processes import ROOT
from tests.market import torture
from tests.market.torture import (
    FORKED,
    Job,
    Violation,
    begin,
    came_to,
    ended_well,
    look,
    mapped,
    nothing_left,
    wait_for,
)

pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc"),
]


def test_the_command_killed_at_random() -> None:
    only = ["--main", "0", "--group", "0", "--postgres", "0", "--flower", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.market.torture", "--kills", "12", "--seed", "1", *only],
        cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed 1\n")
    assert done.stdout.endswith("jobs: all held.\n")


def test_every_kind_of_damage_is_noticed(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path / "job", FORKED, "simulated")
    child = begin(job, images, tmp_path / "log")
    assert wait_for(child, 300) == 0, (tmp_path / "log").read_text()
    look(job)
    whole = came_to(job)
    ended_well(job, whole)
    with pytest.raises(Violation, match="something else"):
        ended_well(job, None)

    entries, charges = job.entries, job.charges
    job.entries = [*entries, "one more"]
    with pytest.raises(Violation, match="ledger lost entries"):
        look(job)
    job.entries, job.charges = entries, [*charges, ("0", 99)]
    with pytest.raises(Violation, match="journal lost charges"):
        look(job)
    job.charges = []

    journal = tmp_path / "job" / "owners" / "privacy.journal"
    kept = journal.read_bytes()
    journal.write_bytes(kept.splitlines(keepends=True)[0])
    with pytest.raises(Violation, match="released and not charged"):
        look(job)
    journal.write_bytes(kept)
    look(job)
    monkeypatch.setattr(torture, "_charges", lambda _: [*charges, charges[0]])
    with pytest.raises(Violation, match="charged twice"):
        look(job)

    memory = SharedMemory(create=True, size=1)
    try:
        seen = mapped(os.getsid(0))
        assert Path("/dev/shm", memory.name) in seen
        with pytest.raises(Violation, match="shared memory is left"):
            nothing_left(child, seen)
    finally:
        memory.close()
        memory.unlink()
    nothing_left(child, seen)
