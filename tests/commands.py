"""The command line as a user calls it: in a process of its own, or, much sooner, in this one."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from noisemarket.cli import main

Done = subprocess.CompletedProcess[str]

PATIENCE = 300
"""Seconds to wait for what comes within a few on a machine that has nothing else to do."""


def command(*words: str) -> list[str]:
    """What starts ``noisemarket`` with these words."""
    return [sys.executable, "-m", "noisemarket", *words]


def call(*words: str, cwd: Path) -> Done:
    """Run ``noisemarket`` in a process of its own."""
    return subprocess.run(
        command(*words), cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def without_torch(*words: str, cwd: Path) -> Done:
    """Run ``noisemarket`` where torch is not installed, for its worker processes either."""
    with tempfile.TemporaryDirectory() as folder:
        missing = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
        (Path(folder) / "torch.py").write_text(missing)
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(
            command(*words), cwd=cwd, capture_output=True, text=True, timeout=PATIENCE,
            check=False, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip


def call_here(*words: str, cwd: Path) -> Done:
    """Run ``noisemarket`` in this process: the same, but for the seconds that a start takes."""
    out, said = io.StringIO(), io.StringIO()
    folder = contextlib.chdir(cwd)
    code: int | str | None = 0
    with folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            main(list(words))
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, out.getvalue(), said.getvalue())


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """What is started here has one core, and so starts one worker for what trains by itself."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def wait_until(
    reached: Callable[[], bool], process: subprocess.Popen[Any], pause: float = 0.01
) -> None:
    """Wait for something to be there while a process runs."""
    end = time.monotonic() + PATIENCE
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "not reached"
        time.sleep(pause)


def has_lines(path: Path, count: int) -> bool:
    """Whether a file is there and has that many lines, whole ones."""
    return path.exists() and path.read_bytes().count(b"\n") >= count


def assert_sentence(said: str) -> None:
    """An error is one sentence, and no traceback."""
    assert said.startswith("noisemarket: ")
    assert said.count("\n") == 1
    assert said.rstrip().endswith((".", "?"))
    assert "Traceback" not in said
