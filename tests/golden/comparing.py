"""The golden files: how they are written, and where a record differs from one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXPECTED = Path(__file__).resolve().parent / "expected"
MOST_SHOWN = 20
MADE_ON = "made_on"
ELSEWHERE = 1e-4
"""How far numbers may be apart on a machine whose arithmetic rounds differently."""

Difference = tuple[str, str, str]


def path_of(name: str) -> Path:
    return EXPECTED / f"{name}.json"


def exists(name: str) -> bool:
    return path_of(name).exists()


def write(name: str, record: dict[str, Any]) -> None:
    """Write a golden file: one line for each item of a list or table."""
    path_of(name).write_text(_as_text(record), encoding="utf-8")


def read(name: str) -> dict[str, Any]:
    return dict(json.loads(path_of(name).read_text(encoding="utf-8")))


def complaint(name: str, record: dict[str, Any]) -> str:
    """The first differences from a golden file, one per line; empty if there are none."""
    record = json.loads(_as_text(record))
    found = list(differences(read(name), record))
    lines = [f"{path}: {old} -> {new}" for path, old, new in found[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        lines.append(f"and {len(found) - MOST_SHOWN} more")
    return "\n".join(lines)


def differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Difference]:
    """Where two records differ: exactly, or roughly if they were made by different arithmetic."""
    exact = old[MADE_ON] == new[MADE_ON]
    rest = ({key: one for key, one in record.items() if key != MADE_ON} for record in (old, new))
    return _differences(*rest, "", exact)


def _differences(old: Any, new: Any, path: str, exact: bool) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            below = f"{path}.{key}" if path else str(key)
            if key not in new:
                yield below, _short(old[key]), "missing"
            elif key not in old:
                yield below, "missing", _short(new[key])
            else:
                yield from _differences(old[key], new[key], below, exact)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield path, f"{len(old)} items", f"{len(new)} items"
        for at, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from _differences(one, other, f"{path}[{at}]", exact)
    elif not _same(old, new, exact):
        yield path, _short(old), _short(new)


def _same(old: Any, new: Any, exact: bool) -> bool:
    if _is_number(old) and _is_number(new):
        if exact:
            return bool(old == new) or (math.isnan(old) and math.isnan(new))
        return math.isclose(old, new, rel_tol=ELSEWHERE, abs_tol=ELSEWHERE)
    if not exact and isinstance(old, str) and isinstance(new, str) and "sha256" in old:
        return "sha256" in new
    return type(old) is type(new) and bool(old == new)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _as_text(record: dict[str, Any]) -> str:
    return (
        "{\n" + ",\n".join(f"{_line(key)}: {_lines(one)}" for key, one in record.items()) + "\n}\n"
    )


def _lines(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f" {_line(one)}" for one in value) + "\n]"
    if isinstance(value, dict) and value:
        return (
            "{\n" + ",\n".join(f" {_line(key)}: {_line(one)}" for key, one in value.items()) + "\n}"
        )
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
