"""Runs a market over and over in child processes and kills them (-9) at random moments.

    python -m tests.market.killed IMAGES FOLDER NOISE SEED KILLS

A child begins, or goes on with, the market in FOLDER. One that was not killed in time ends the
folder; another one is begun until there were KILLS kills. Prints the folders and how often each was
killed, as JSON. The children are forks, so that a start costs nothing; the parent only waits.
``tests.market.torture`` does the same to ``noisemarket run``.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.market.common import played, scenario

from noisemarket.files import write_atomic
from noisemarket.market import run_folder as folders


def begun(folder: Path, key: bytes) -> Path:
    """A run folder in which nothing is but the noise's key, which is the same in all of them."""
    market = folders.MarketFolder(folder)
    market.prepare()
    write_atomic(market.owners / folders.NOISE_KEY, key, private=True)
    return folder


def child(work: Callable[[], object]) -> int:
    """A forked process that does this; says nothing on standard output."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        work()
        code = 0
    finally:
        os._exit(code)


def main() -> None:
    given, parent, noise, seed, kills = sys.argv[1:]
    images, key, rng = Path(given), bytes(range(32)), random.Random(seed)

    def go_on(name: str) -> Callable[[], object]:
        place = Path(parent) / name
        return partial(played, scenario(images, noise=noise), begun(place, key))

    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    go_on("warm")()  # imports all there is to import
    start = time.monotonic()
    go_on("whole")()
    whole = time.monotonic() - start
    done: dict[str, int] = {}
    while sum(done.values()) < int(kills):
        name = f"killed-{len(done)}"
        work, done[name], alive = go_on(name), 0, True
        while alive:
            pid = child(work)
            time.sleep(rng.uniform(0.0, 1.5 * whole))  # even what is always done can end
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0
                alive = False
            else:
                done[name] += 1
    os.write(out, json.dumps(done).encode())


if __name__ == "__main__":
    main()
