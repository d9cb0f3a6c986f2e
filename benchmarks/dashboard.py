"""How much do viewers of a live run slow it down?

    python -m benchmarks dashboard [--viewers 50] [--turns 3] [--rounds 100] [--store FILE]

The same market is run on its own and while many viewers watch it in the dashboard, in turns, so
that what else the machine does meets both. A viewer asks for what a page asks for: the run, its
state once a second, its curves, and its contracts whenever they change. All viewers live in one
process of the lowest priority, because theirs is the work of other machines.

The server is there in both cases. Two figures are told: how much longer the run takes by the clock,
the middle one of the turns, and how many seconds of a core the server spent meanwhile, which does
not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from noisemarket.machine import machine_in_words

OFTEN = 2.0
"""Seconds between two looks of a page at contracts that change."""

TOKEN = "NOISEMARKET_TOKEN"
SERVER = [sys.executable, "-m", "noisemarket", "dashboard"]


class Viewer:
    """One page that is open on a run."""

    def __init__(self, host: str, port: int, token: str, run: str) -> None:
        self._place, self._run, self._contracts = (host, port), run, ""
        self._head = f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._looked, self.states, self.longest = 0.0, 0, 0.0

    async def ask(self, path: str) -> tuple[int, bytes]:
        """An answer in full."""
        reader, writer = await asyncio.open_connection(*self._place)
        writer.write(f"GET /api/{path} HTTP/1.1\r\n{self._head}Connection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]

    async def watch(self) -> None:
        """Open the page and stay until the run is complete."""
        while (await self.ask(f"runs/{self._run}"))[0] == 404:
            await asyncio.sleep(0.5)
        await self.ask("about")
        fetched = False
        while True:
            _, line = await self.ask(f"runs/{self._run}/state")
            self.states += 1
            if not fetched and b'"agreed":null' not in line:
                fetched = True
                await self.ask(f"runs/{self._run}/curves")
            over = b'"state":"complete"' in line
            found = re.findall(rb'"(?:signed|contracts_paid|contracts_broken)":(\d+)', line)
            if str(found) != self._contracts and (over or time.monotonic() - self._looked > OFTEN):
                self._contracts, self._looked = str(found), time.monotonic()
                await self.ask(f"runs/{self._run}/contracts?sort=payment&descending=true&limit=50")
                self.longest = max(self.longest, time.monotonic() - self._looked)
            if over:
                break
            await asyncio.sleep(1.0)


async def watch(host: str, port: int, run: str, viewers: int) -> dict[str, Any]:
    """Let that many watch a run; what they saw."""
    every = [Viewer(host, port, os.environ[TOKEN], run) for _ in range(viewers)]
    await asyncio.gather(*(one.watch() for one in every))
    return {
        "states": statistics.median(one.states for one in every),
        "contracts_seconds": round(max(one.longest for one in every), 3),
        "cpu": round(sum(os.times()[:2]), 2),
    }


def timed(root: Path, name: str, rounds: int, address: str, viewers: int, server: psutil.Process
          ) -> dict[str, Any]:  # fmt: skip
    """A run with that many viewers: seconds by the clock, and of a core."""
    found = re.match(r"http://([^:/]+):(\d+)/", address)
    assert found is not None
    before = sum(server.cpu_times()[:2])
    looking = None
    if viewers:
        words = ["--watch", found[1], found[2], name, "--viewers", str(viewers)]
        own = [sys.executable, __file__, *words]
        looking = subprocess.Popen(own, stdout=subprocess.PIPE, preexec_fn=lambda: os.nice(19))
        time.sleep(1.0)
    words = ["run", "--no-baselines", "--set", f"rounds={rounds}", "--out", str(root / name)]
    used, began = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "noisemarket", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    seconds, after = time.perf_counter() - began, os.times()
    if done.returncode:
        sys.exit(f"noisemarket run ended with {done.returncode}.")
    out = {
        "viewers": viewers,
        "seconds": round(seconds, 2),
        "run_cpu": round(sum(after[2:4]) - sum(used[2:4]), 2),
    }
    if looking is not None:
        out |= json.loads(looking.communicate()[0])
    return out | {"server_cpu": round(sum(server.cpu_times()[:2]) - before, 2)}


def measured(viewers: int, turns: int, rounds: int) -> list[dict[str, Any]]:
    """All turns: without viewers and with them, each first in every other turn."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "runs"
        server = subprocess.Popen(
            [*SERVER, str(root), "--port", "0", "--no-open"], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        said = re.search(r"http://\S+", server.stdout.readline())
        assert said is not None
        try:
            for turn in range(turns):
                for some in (0, viewers) if turn % 2 == 0 else (viewers, 0):
                    row = timed(root, f"{turn}-{some}", rounds, said[0], some,
                                psutil.Process(server.pid))  # fmt: skip
                    rows.append({"turn": turn, **row})
                    print(json.dumps(rows[-1]), flush=True)
        finally:
            server.terminate()
            server.wait()
    return rows


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What viewers cost the run, by the clock and in seconds of a core."""
    pairs: dict[int, dict[bool, dict[str, Any]]] = {}
    for row in rows:
        pairs.setdefault(row["turn"], {})[row["viewers"] > 0] = row
    watched = [pair[True] for pair in pairs.values()]
    slower = [pair[True]["seconds"] / pair[False]["seconds"] - 1.0 for pair in pairs.values()]
    work = [row["server_cpu"] / (row["run_cpu"]) for row in watched]
    return {
        "slower_percent": round(100 * statistics.median(slower), 2),
        "slower_percent_each": [round(100 * one, 2) for one in slower],
        "server_percent_of_run_cpu": round(100 * statistics.median(work), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--store", help="write the figures to this JSON file")
    parser.add_argument("--watch", nargs=3, metavar=("HOST", "PORT", "RUN"),
                        help="be the viewers of a run; what this script calls itself")  # fmt: skip
    given = parser.parse_args()
    if given.watch:
        host, port, run = given.watch
        print(json.dumps(asyncio.run(watch(host, int(port), run, given.viewers))))
        return
    os.environ[TOKEN] = secrets.token_hex(16)  # the server's and the viewers'
    rows = measured(given.viewers, given.turns, given.rounds)
    found = figures(rows)
    print(
        f"{given.viewers} viewers slow the run by {found['slower_percent']} % (median of "
        f"{given.turns} turns); the server spends {found['server_percent_of_run_cpu']} % of the "
        f"run's own CPU time"
    )
    if given.store:
        document = {
            "what": f"A live market with {given.viewers} viewers in the dashboard against none.",
            "command": f"benchmarks/dashboard.py --viewers {given.viewers} --turns {given.turns} "
            f"--rounds {given.rounds}",
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": machine_in_words(),
            **found,
            "rows": rows,
        }
        Path(given.store).write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
