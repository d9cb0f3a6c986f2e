"""What several commands share: a progress bar, stopping cleanly, and what is printed."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from noisemarket.errors import BadInput
from noisemarket.market.run_folder import RunFolder


def writable_file(option: str, file: str | None) -> None:
    """Refuse an option that names a file in a folder that does not exist."""
    if file is not None and (Path(file).is_dir() or not Path(file).parent.is_dir()):
        raise BadInput(option, file, "name a file in a folder that exists.")


Stop = Callable[[], bool]
"""Says, from the first Ctrl-C (or SIGTERM) on: finish what is running and keep it."""

ROUND_DROPPED = "Stopping: this round is dropped, earlier rounds are kept."
TRAINING_DROPPED = "Stopping: finished trainings are kept, those under way are dropped."
_KEPT = "Stopping: running work is finished and kept. Press Ctrl-C again to drop it."


@contextmanager
def stoppable(message: str = _KEPT) -> Iterator[Stop]:
    """While open, the first Ctrl-C only requests a stop; a second one interrupts at once."""
    requested = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        print(message, file=sys.stderr, flush=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress(unit: str) -> Iterator[Progress]:
    """A progress bar on standard error, shown only on a terminal."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        yield bar


def console() -> Console:
    """Standard output; wide enough for a table where it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 130, highlight=False)


def show(as_json: bool, document: object, *shown: Table | str) -> None:
    """Print a result: as JSON, or for people by these tables and sentences."""
    if as_json:
        print(json.dumps(document, allow_nan=False))
        return
    out = console()
    for one in shown:
        text = isinstance(one, str)
        out.print(one, soft_wrap=text, markup=False if text else None)


def paths(folder: RunFolder, figures: Iterable[Path] = ()) -> list[str]:
    """Where the run folder and its figures (of each, the PNG) are."""
    pictures = ", ".join(str(path) for path in figures if path.suffix == ".png")
    return [f"Run folder: {folder.path}", *([f"Figures: {pictures}"] if pictures else [])]
