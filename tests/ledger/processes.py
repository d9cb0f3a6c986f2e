"""Real processes that settle one job at the same time, or are killed while they do.

Run as a program, so that it has one thread and may fork::

    python -m tests.ledger.processes race PLACE same|different
    python -m tests.ledger.processes kill PLACE SEED
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.ledger.common import NOW, Job, key

from noisemarket.errors import LedgerConflict
from noisemarket.ledger.store import open_ledger
from noisemarket.market.offers import settle

ROOT = Path(__file__).resolve().parent.parent.parent
OWNERS = [f"owner-{number}" for number in range(20)]
WRITERS = 4
KILLS = 12


def job(name: str = "job-1") -> Job:
    return Job.of(OWNERS, name)


def run(*arguments: str) -> str:
    """Run this file and give what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.ledger.processes", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def child(work: Callable[[], int]) -> int:
    """A forked process that does this and ends with its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        code = work()
    except BaseException as problem:
        print(repr(problem), file=sys.stderr, flush=True)
    os._exit(code)


def settle_all(place: str, broken: tuple[str, ...] = (), tell: int | None = None) -> int:
    """One whole settlement, a contract a transaction; 1 if another verdict was there first.

    Inside every transaction a byte is written to ``tell``.
    """

    def clock() -> str:
        if tell is not None:
            os.write(tell, b".")
        return NOW

    with open_ledger(place, clock=clock, curator=key("curator")) as ledger:
        try:
            settle(ledger, "job-1", job().verdicts(broken), batch=1)
        except LedgerConflict:
            return 1
    return 0


def race(place: str, same: bool) -> None:
    """Several processes settle at once; prints how many of them came through."""
    ready, go = os.pipe()

    def work(number: int) -> int:
        os.close(go)
        os.read(ready, 1)  # ends for all when the parent closes its end
        return settle_all(place, () if same else (OWNERS[number],))

    pids = [child(partial(work, number)) for number in range(WRITERS)]
    os.close(go)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert set(codes) <= {0, 1}, codes
    print(codes.count(0))


def kill(place: str, seed: int) -> None:
    """Settle again and again, killed in or soon after a random transaction; prints how often."""
    draws = random.Random(seed)
    killed = 0
    for _ in range(KILLS):
        told, tell = os.pipe()
        pid = child(partial(settle_all, place, (), tell))
        os.close(tell)
        for _ in range(draws.randint(1, len(OWNERS))):
            os.read(told, 1)
        time.sleep(draws.uniform(0.0, 0.004))
        os.kill(pid, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        os.close(told)
    print(killed)


if __name__ == "__main__":
    if sys.argv[1] == "race":
        race(sys.argv[2], sys.argv[3] == "same")
    else:
        kill(sys.argv[2], int(sys.argv[3]))
