"""What the parts of the page share: stored results, tables, and who measured what."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.machine import Effort
from noisemarket.study.results import half_width

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"

Document = Mapping[str, Any]


def stored(name: str) -> Document | None:
    """A stored result, if there is one."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    return dict(json.loads(path.read_text(encoding="utf-8")))


def keep(
    name: str, doc: str | None, command: str, effort: Effort, found: Document, *, store: bool = True
) -> Document:
    """A result with what it took and the command that measures it again; stored unless quick."""
    what = (doc or "").splitlines()[0]
    document = {"what": what, "command": command, **effort.as_dict(), **found}
    if store:
        path = RESULTS / f"{name}.json"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"Stored: {path}. python -m benchmarks report writes the table.")
    return document


def filled(page: str, name: str, text: str) -> str:
    """A page with this text between its two marks of that name."""
    first, last = f"<!-- stored: {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.partition(first)
    _, _, after = rest.partition(last)
    assert after, f"no marks {name}"
    return f"{before}{first}{text}\n{last}{after}"


def made_by(found: Document) -> str:
    """The command that measured a result; the stored file has date, machine and time."""
    command = str(found["command"])
    command = command if command.startswith(("noisemarket", "python")) else f"python {command}"
    return "`" + re.sub(r"python benchmarks/(\w+)\.py", r"python -m benchmarks \1", command) + "`"


def not_measured(command: str) -> str:
    """What a part says that has no stored result."""
    return f"Not measured yet: `{command}` does."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def pm(values: Sequence[float], digits: int = 1, factor: float = 1.0) -> str:
    """A mean over the seeds with half of its interval."""
    scaled = [factor * one for one in values]
    return f"{np.mean(scaled):.{digits}f} ± {half_width(scaled):.{digits}f}"
