"""docs/explanation/results.md, its figures and tables of the README, from benchmarks/results.

    python benchmarks/report.py

No number on that page is typed: ``tests/test_docs.py`` makes the text again and compares. What has
no stored result is said to be not measured, with the command that would.
"""

from __future__ import annotations

from results_page.accuracy import accuracy_part
from results_page.common import ROOT, filled
from results_page.demo_part import demo_part
from results_page.figures import draw
from results_page.frontier_parts import cnn_part, frontier_part, no_floor_part
from results_page.study_parts import (
    adaptation_part,
    epsilon_part,
    fashion_part,
    poison_part,
    scale_part,
    sensitivity_part,
)

PAGE = ROOT / "docs" / "explanation" / "results.md"
README = ROOT / "README.md"


def main() -> None:
    """Write the page, its figures and the README's tables."""
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
    draw()
    print(f"Written: {PAGE}, {README}")


def readme() -> str:
    """The README with what is stored now."""
    return filled(README.read_text(encoding="utf-8"), "demo", demo_part())


def page() -> str:
    """The whole page."""
    parts = [
        "# Results",
        "<!-- Written by benchmarks/report.py from benchmarks/results. Do not edit. -->",
        "Everything below is made by `python benchmarks/report.py` from stored results. Each part "
        "names the command that measured it, the date and the machine; seconds are processor "
        "seconds, so that what else the machine did does not count. ± is half of the 95 % interval "
        "over the seeds. [What holds of DyPP](dypp.md) draws the conclusions.",
        *accuracy_part(),
        *frontier_part(),
        *no_floor_part(),
        *cnn_part(),
        *sensitivity_part(),
        *adaptation_part(),
        *scale_part(),
        *fashion_part(),
        *epsilon_part(),
        *poison_part(),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
