"""Follow one owner's deal through a run: which files it passes, and how often it changes rooms.

Runs a market of one owner and one round in this process, and notes every function of the package
when it is called for the first time; modules outside of rooms (files, errors) do not count. Worker
processes are not followed: what they run is the owner's training.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from itertools import groupby
from pathlib import Path
from types import FrameType

import noisemarket as nm

PACKAGE = Path(nm.__file__).parent


def walk() -> list[tuple[Path, str]]:
    """File and name of every function, in the order of their first calls."""
    first: dict[tuple[Path, str], None] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            name, inside = frame.f_code.co_qualname, file.relative_to(PACKAGE)
            function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # no module or class body
            if function and len(inside.parts) > 1:
                first.setdefault((inside, name))

    scenario = nm.Scenario.from_preset("market", owners=1, rounds=1)
    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(note)
        try:
            nm.run_market(scenario, Path(folder) / "run", workers=1).finish()
        finally:
            sys.setprofile(None)
    return list(first)


def main() -> None:
    """Print the walk: a line for each stay in a room."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brief", action="store_true", help="only the two numbers")
    brief = parser.parse_args().brief
    calls = walk()
    stays = [(room, list(group)) for room, group in groupby(calls, key=lambda one: one[0].parts[0])]
    if not brief:
        for room, group in stays:
            files = dict.fromkeys(file.name for file, _ in group)
            print(f"{room}: {', '.join(files)}")
    print(f"{len({file for file, _ in calls})} files, {len(stays) - 1} changes of room")


if __name__ == "__main__":
    main()
