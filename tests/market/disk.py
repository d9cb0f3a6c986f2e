"""``noisemarket run`` on a disk that is full, or may not be written to, in one process.

    python -m tests.market.disk full|read-only IMAGES FOLDER

Prints one JSON line per attempt: what was tried, exit code, and what was said.
"""

import contextlib
import io
import json
import os
import resource
import sys
from pathlib import Path

from matplotlib.figure import Figure
from tests.ledger.postgres import NOBODY
from tests.market.common import here, words

from noisemarket.cli import main
from noisemarket.market import job as market_job

FEW = {30_000: "ledger.sqlite", 60_000: "checkpoint.npz", 85_000: "figures/market.png"}
"""Bytes that a file may have, and what then cannot be written."""

FIGURE = bytes(90_000)
"""What stands for every figure: to render them takes longer than all the rest."""

STEPS = ("Negotiated: ", "Trained ", "Settled: ")
"""How the line of a finished step begins."""


def attempt(name: str, arguments: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    said = [line for line in err.getvalue().splitlines() if not line.startswith(STEPS)]
    print(json.dumps({"name": name, "code": code, "said": said, "out": out.getvalue()}), flush=True)


def full(images: str, folder: Path) -> None:
    for few in FEW:
        place = str(folder / str(few))
        again = ["run", "--no-baselines", "--resume", place]
        resource.setrlimit(resource.RLIMIT_FSIZE, (few, resource.RLIM_INFINITY))
        attempt(str(few), [*words(Path(images), noise="secure"), "--out", place])
        attempt(str(few), again)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        attempt("room", again)


def read_only(images: str, folder: Path) -> None:
    run_folder = folder / "run"
    paths = [folder, run_folder, *run_folder.rglob("*")]
    if os.geteuid() == 0:  # root may write anywhere, so be somebody else
        for path in paths:
            os.chown(path, NOBODY, NOBODY)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(modes[path] & ~0o222)
    attempt("resumed", ["run", "--no-baselines", "--resume", str(run_folder)])
    attempt("begun", [*words(Path(images), noise="secure"), "--out", str(folder / "new")])
    for path in paths:
        path.chmod(modes[path])
    attempt("writable", ["run", "--no-baselines", "--resume", str(run_folder)])


if __name__ == "__main__":
    kind, images, parent = sys.argv[1:]
    market_job.run_market = here  # type: ignore[assignment]
    Figure.savefig = lambda figure, out, **more: out.write(FIGURE)  # type: ignore[method-assign]
    with contextlib.redirect_stdout(io.StringIO()):  # imports all there is, while it may
        attempt("whole", [*words(Path(images), noise="secure"), "--out", f"{parent}/run"])
        if kind != "full":
            attempt("again", ["run", "--no-baselines", "--resume", f"{parent}/run"])
    (full if kind == "full" else read_only)(images, Path(parent))
