"""Runs a market over and over in child processes and kills them (-9) at random moments.

    python -m tests.market.killed IMAGES FOLDER NOISE SEED KILLS

A child begins, or goes on with, the market in FOLDER. One that was not killed in time ends the
folder; another one is begun until there were KILLS kills. Prints the folders and how often each was
killed, as JSON. The children are forks, so that a start costs nothing; the parent only waits.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from tests.market.common import played, scenario

from noisemarket.market import folder as folders


def begun(folder: Path, key: bytes) -> Path:
    """A run folder in which nothing is but the noise's key, which is the same in all of them."""
    market = folders.MarketFolder(folder)
    market.prepare()
    (market.owners / folders.NOISE_KEY).write_bytes(key)
    return folder


def main() -> None:
    torch.set_num_threads(1)
    images, parent, noise, seed, kills = sys.argv[1:]
    made, key, rng = scenario(Path(images), noise=noise), bytes(range(32)), random.Random(seed)
    played(made, begun(Path(parent) / "warm", key))  # imports all there is to import
    start = time.monotonic()
    played(made, begun(Path(parent) / "whole", key))
    whole = time.monotonic() - start
    done: dict[str, int] = {}
    while sum(done.values()) < int(kills):
        name = f"killed-{len(done)}"
        place, done[name], alive = begun(Path(parent) / name, key), 0, True
        while alive:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    played(made, place)
                    code = 0
                finally:
                    os._exit(code)
            time.sleep(rng.uniform(0.0, whole))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0
                alive = False
            else:
                done[name] += 1
    print(json.dumps(done))


if __name__ == "__main__":
    main()
