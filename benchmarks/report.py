"""The pages that stand on stored results, and their figures, from benchmarks/results.

    python -m benchmarks report

writes docs/explanation/results.md, the marked parts of other pages, and all of their figures. No
number there is typed: ``tests/test_results_pages.py`` makes the text again and compares, also what
each figure was drawn from. A part without a stored result names the command that would measure it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.results_page import speed_parts
from benchmarks.results_page.accuracy import accuracy_part, epsilon_part
from benchmarks.results_page.common import ROOT, filled
from benchmarks.results_page.demo_part import demo_in_words
from benchmarks.results_page.dypp_page import INSTEAD, claims, dypp_parts, readme_claims
from benchmarks.results_page.engine_part import engine_table
from benchmarks.results_page.figures import draw
from benchmarks.results_page.million_part import million_part
from benchmarks.results_page.privacy_part import privacy_part
from benchmarks.results_page.study_parts import (
    cheats_part,
    fars_part,
    lying_part,
    market_part,
    readme_market,
)
from benchmarks.results_page.times import times_table

PAGE = ROOT / "docs" / "explanation" / "results.md"
MARKED: dict[Path, dict[str, Callable[[], str | None]]] = {
    ROOT / "README.md": {
        "demo": demo_in_words,
        "claims": readme_claims,
        "market": readme_market,
        "times": times_table,
    },
    ROOT / "docs" / "explanation" / "privacy.md": {"epsilons": privacy_part},
    ROOT / "benchmarks" / "README.md": {
        "game": speed_parts.game_part,
        "mechanisms": speed_parts.mechanisms_part,
        "reach": speed_parts.reach_part,
        "scores": speed_parts.scores_part,
        "bisection": speed_parts.bisection_part,
        "tables": speed_parts.tables_part,
        "engine": engine_table,
        "federated": speed_parts.federated_part,
        "ledger": speed_parts.ledger_part,
        "flower": speed_parts.flower_part,
        "million": million_part,
    },
}
"""Pages to their marked parts, each with what makes it."""


def main() -> None:
    """Write the pages and draw their figures."""
    draw()
    PAGE.write_text(page(), encoding="utf-8")
    print(f"Written: {PAGE}")
    for claim, holds in claims().items():
        if not holds:
            print(f"No longer true, and said in fixed words by dypp_page.py: {claim}")
    for path in MARKED:
        path.write_text(marked(path, path.read_text(encoding="utf-8")), encoding="utf-8")


def marked(path: Path, text: str) -> str:
    """A page with its marked parts as they are stored; a part without a result stays."""
    for name, make in MARKED[path].items():
        if (part := make()) is not None:
            text = filled(text, name, part)
    return text


def page() -> str:
    """The whole page of results."""
    parts = [
        "# Results",
        "<!-- Written by benchmarks/report.py from benchmarks/results. Do not edit. -->",
        "After this page you know what the paper's mechanism DyPP brings beside others, and how "
        "accurate the model is at which privacy. `python -m benchmarks report` makes it from "
        "`benchmarks/results`, which has date, machine and all numbers of each result. ± is half "
        "of the 95 % interval over the seeds.",
        *market_part(),
        *dypp_parts(),
        *lying_part(),
        *fars_part(),
        *epsilon_part(),
        *accuracy_part(),
        *cheats_part(),
        *INSTEAD,
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
