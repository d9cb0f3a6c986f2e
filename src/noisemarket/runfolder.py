"""A run folder holds all it takes to repeat and to read a run; nothing in it is half-written."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput, NoisemarketError

STATUS = "status.json"


class RunFolder:
    """A folder with a ``status.json`` that says running, complete or incomplete.

    Files are written beside their place and moved into it, so a reader sees all of a file or none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._started = _now()

    @classmethod
    def create(
        cls, out: str | None, stem: str, *, overwrite: bool = False, inputs: Sequence[str] = ()
    ) -> RunFolder:
        """Make the folder ``out``, or a new one named by time and ``stem`` under ``runs/``.

        An earlier run folder is replaced only if asked, and never one that holds an input.
        """
        path = Path(out) if out else _fresh(Path("runs"), stem)
        folder = cls(path)
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                if path.is_symlink() or not (path / STATUS).is_file():
                    raise BadInput("--out", str(path), "is there and no run folder: name another.")
                if not overwrite:
                    raise BadInput("--out", str(path), "exists already: add --overwrite or rename.")
                if any(path.resolve() in Path(file).resolve().parents for file in inputs):
                    raise BadInput("--out", str(path), "holds an input of this run: rename.")
                shutil.rmtree(path)
            path.mkdir(parents=True, exist_ok=True)
            folder.status("running")
        except OSError as problem:
            reason = problem.strerror or str(problem)
            raise BadInput("--out", str(path), f"cannot be written ({reason}).") from None
        return folder

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: object, trace: object) -> None:
        """Whatever breaks a run, its folder says that it is incomplete."""
        if kind is not None:
            with contextlib.suppress(NoisemarketError, OSError):
                self.status("incomplete", problem=f"{kind.__name__}: {problem}".rstrip(": "))

    def status(self, state: str, **more: object) -> None:
        """Say how the run stands."""
        from noisemarket import __version__

        document = {
            "state": state,
            "started": self._started,
            "updated": _now(),
            "noisemarket": __version__,
            "python": sys.version.split()[0],
            **more,
        }
        self.write_json(STATUS, document)

    def write_text(self, name: str, text: str) -> Path:
        """Write a file, whole or not at all."""
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text)
        return place

    def write_json(self, name: str, document: Any) -> Path:
        """Write a JSON file, whole or not at all."""
        return self.write_text(name, json.dumps(document, indent=2, allow_nan=False) + "\n")

    def append(self, name: str, text: str) -> None:
        """Add lines to a file that grows while a run goes on."""
        place = self.path / name
        try:
            with place.open("a", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except OSError as problem:
            reason = problem.strerror or str(problem)
            raise NoisemarketError(f"{place} cannot be written: {reason}.") from None

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        (self.path / name).unlink(missing_ok=True)


def write_whole(place: Path, text: str) -> None:
    """Write a text file so that a reader sees all of it or nothing new."""
    special = place.exists() and not place.is_file()
    beside = place if special else place.with_name(f".{place.name}.new")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            if not special:
                os.fsync(file.fileno())
        if not special:
            beside.replace(place)
    except OSError as problem:
        if not special:
            beside.unlink(missing_ok=True)
        reason = problem.strerror or str(problem)
        raise NoisemarketError(f"{place} cannot be written: {reason}.") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _fresh(parent: Path, stem: str) -> Path:
    base = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{stem}"
    path, number = parent / base, 1
    while path.exists():
        number += 1
        path = parent / f"{base}-{number}"
    return path
