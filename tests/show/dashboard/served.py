"""``noisemarket dashboard`` in a process of its own, as a user starts it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import IO

import psutil
from tests.commands import PATIENCE, command

TOKEN = "TokenOfTheTests0123456789"


class Served:
    """A server of a folder; ``stop`` ends it, ``start`` begins it again at the same address.

    Its token is the tests' own, so that pages go on when it is started again.
    """

    def __init__(self, root: Path, *options: str) -> None:
        self.root, self._options, self.address, self._port = root, options, "", 0
        self.start()

    def start(self) -> None:
        words = command("dashboard", str(self.root), "--no-open", "--port", str(self._port))
        self.process = subprocess.Popen(
            [*words, *self._options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "NOISEMARKET_TOKEN": TOKEN},
        )  # fmt: skip
        out = self.process.stdout
        assert out is not None
        self.address = _address(out)
        self._port = int(self.address.rsplit(":", 1)[1].split("/")[0])

    def stop(self, *, kill: bool = False) -> None:
        self.process.kill() if kill else self.process.terminate()
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()


def _address(out: IO[str]) -> str:
    said = []
    for line in out:
        said.append(line)
        if found := re.search(r"(http://[^\s?]+/)", line):
            return found[1]
    raise AssertionError("".join(said))


def process_of(folder: Path) -> psutil.Process:
    """The process that works in a run folder; suspended, it gives a test all the time it needs."""
    return psutil.Process(json.loads((folder / "status.json").read_text())["process"]["id"])


def bearer() -> dict[str, str]:
    """The header that brings the token."""
    return {"authorization": f"Bearer {TOKEN}"}
