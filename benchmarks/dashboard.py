"""How much do viewers of a live run slow it down?

The same market is run on its own and while many viewers watch it in the dashboard, in turns, so
that what else the machine does meets both. The time is that of the whole command.

    python benchmarks/dashboard.py [--viewers 50] [--turns 3] [--rounds 200]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


def market(folder: Path, rounds: int) -> subprocess.Popen[bytes]:
    words = ["run", "--no-baselines", "--set", f"rounds={rounds}", "--out", str(folder)]
    return subprocess.Popen(
        [sys.executable, "-m", "noisemarket", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def watch(address: str, run: str, seen: list[int], over: threading.Event) -> None:
    """Read the stream of a run to its end; notes how many states came."""
    connection = http.client.HTTPConnection(address, timeout=120)
    while not over.is_set():
        connection.request("GET", f"/api/runs/{run}/events")
        answer = connection.getresponse()
        if answer.status == 200:
            break
        answer.read()  # not begun yet
        time.sleep(0.2)
    count = 0
    for line in answer:
        if line.startswith(b"data: "):
            count += 1
            if json.loads(line[6:])["state"] == "complete":
                break
    seen.append(count)
    answer.close()
    connection.close()


def timed(root: Path, name: str, rounds: int, address: str, viewers: int) -> tuple[float, int]:
    """Seconds of a run with that many viewers, and how many states the median one was told."""
    seen: list[int] = []
    over = threading.Event()
    began = time.perf_counter()
    run = market(root / name, rounds)
    threads = [
        threading.Thread(target=watch, args=(address, name, seen, over)) for _ in range(viewers)
    ]
    for thread in threads:
        thread.start()
    code = run.wait()
    seconds = time.perf_counter() - began
    over.set()
    for thread in threads:
        thread.join()
    if code:
        sys.exit(f"noisemarket run ended with {code}.")
    return seconds, int(statistics.median(seen)) if seen else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "runs"
        server = subprocess.Popen(
            [sys.executable, "-m", "noisemarket", "dashboard", str(root), "--port", "0",
             "--no-open"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.stdout is not None
        found = re.search(r"http://(\S+?)/", server.stdout.readline())
        assert found is not None
        try:
            alone, watched = [], []
            for turn in range(given.turns):
                for viewers, times in ((0, alone), (given.viewers, watched)):
                    name = f"{turn}-{viewers}"
                    seconds, states = timed(root, name, given.rounds, found[1], viewers)
                    times.append(seconds)
                    print(
                        f"{viewers:4} viewers: {seconds:6.1f} s, {states} states each", flush=True
                    )
        finally:
            server.terminate()
            server.wait()
    # The least of each: what else the machine does only adds.
    slower = min(watched) / min(alone) - 1.0
    print(f"{given.viewers} viewers slow the run by {100 * slower:.1f} %")
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
