"""What docs/explanation/calibration.md says of the package's surfaces, read off their files.

``python -m tests.calibration.surfaces_page`` writes it anew after a calibration.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from noisemarket.calibration.fit import poorly_determined

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "calibration.md"
SURFACES = ROOT / "src" / "noisemarket" / "scenario" / "surfaces"
BEGIN, END = "<!-- surfaces: read off their files -->\n", "<!-- surfaces: end -->\n"
CONSTANTS = [("gamma", place) for place in range(5)] + [("zeta", place) for place in range(2)]


def block() -> str:
    """The table, a column for each surface."""
    files = {
        path.stem: tomllib.loads(path.read_text(encoding="utf-8"))
        for path in sorted(SURFACES.glob("*.toml"))
    }
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "protection": lambda file: f"`{file['provenance']['privacy']['protection']}`",
        "betas measured": lambda file: _listed(file, 1),
        "seeds": lambda file: str(len({point[2] for point in file["measured"]["points"]})),
        "training, minutes": lambda file: f"{file['provenance']['seconds'] / 60:.0f}",
        **{
            f"accuracy at sigma 0, 0.3, 0.6, beta {beta:g}": partial(_accuracies, beta=beta)
            for beta in sorted(
                {p[1] for file in files.values() for p in file["measured"]["points"]}
            )
        },
        "beta counts": _counting,
        "fit off by, rms (worst), points": lambda file: (
            f"{file['fit']['rms_accuracy']:.2f} ({file['fit']['worst_accuracy']:.2f})"
        ),
    }
    for kind, place in CONSTANTS:
        rows[f"{kind}_{place + 1}"] = lambda file, kind=kind, place=place: _constant(  # type: ignore[misc]
            file, kind, place
        )
    lines = [
        "| | " + " | ".join(f"`{name}`" for name in files) + " |",
        "|---" * (1 + len(files)) + "|",
    ]
    for name, shown in rows.items():
        lines.append(f"| {name} | " + " | ".join(shown(file) for file in files.values()) + " |")
    return BEGIN + "\n" + "\n".join(lines) + "\n\n" + END


def _listed(file: dict[str, Any], column: int) -> str:
    return ", ".join(
        f"{value:g}" for value in sorted({p[column] for p in file["measured"]["points"]})
    )


def _counting(file: dict[str, Any]) -> str:
    if "labels" in file:
        return "by how even labels are"
    return "as it is" if "," in _listed(file, 1) else "–"


def _accuracies(file: dict[str, Any], beta: float) -> str:
    shown = []
    for sigma in (0.0, 0.3, 0.6):
        seen = [p[3] for p in file["measured"]["points"] if (p[0], p[1]) == (sigma, beta)]
        shown += [f"{sum(seen) / len(seen):.1f}"] if seen else []
    return ", ".join(shown) + " %" if shown else "–"


def _constant(file: dict[str, Any], kind: str, place: int) -> str:
    value, error = file[kind][place], file["errors"][kind][place]
    if math.isnan(error):
        return f"{value:.3g}, not measured"
    shown = f"{value:.3g} ± {error:.2g}"
    at_edge = any(f"{kind}_{place + 1} stands at the edge" in one for one in file["fit"]["remarks"])
    notes = ["at the edge"] * at_edge + ["poor"] * poorly_determined(value, error)
    return f"{shown} ({', '.join(notes)})" if notes else shown


def written(page: str) -> str:
    """The page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    return before + block() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
