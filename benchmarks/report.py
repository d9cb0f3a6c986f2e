"""The pages that stand on stored results, and their figures, from benchmarks/results.

    python -m benchmarks report

writes docs/explanation/results.md, the marked parts of README.md, and all of their figures. No
number there is typed: ``tests/test_results_pages.py`` makes the text again and compares, also
what each figure was drawn from. A part without a stored result
names the command that would measure it.
"""

from __future__ import annotations

import re
from textwrap import fill

from benchmarks.results_page.accuracy import accuracy_part, epsilon_part
from benchmarks.results_page.common import ROOT, filled
from benchmarks.results_page.demo_part import demo_part
from benchmarks.results_page.dypp_page import INSTEAD, claims, dypp_parts, readme_sentence
from benchmarks.results_page.figures import draw
from benchmarks.results_page.study_parts import cheats_part, lying_part, market_part

PAGE = ROOT / "docs" / "explanation" / "results.md"
README = ROOT / "README.md"
MARKED = re.compile(r"(?<=<!-- frontier -->).*?(?=<!-- /frontier -->)", re.DOTALL)


def main() -> None:
    """Write the pages and draw their figures."""
    draw()
    PAGE.write_text(page(), encoding="utf-8")
    print(f"Written: {PAGE}")
    for claim, holds in claims().items():
        if not holds:
            print(f"No longer true, and said in fixed words by dypp_page.py: {claim}")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")


def readme(text: str) -> str:
    """The README with its table of a run and its sentence on what money buys as they are stored."""
    if (run := demo_part()) is not None:
        text = filled(text, "demo", run)
    words = readme_sentence()
    if words is None:
        return text
    before = "-" * len("trains what each buys. ")  # stands before it in its first line
    wrapped = fill(before + words, 122, break_long_words=False, break_on_hyphens=False)
    return MARKED.sub(lambda _: " " + wrapped.removeprefix(before), text)


def page() -> str:
    """The whole page of results."""
    parts = [
        "# Results",
        "<!-- Written by benchmarks/report.py from benchmarks/results. Do not edit. -->",
        "What we found about the paper's mechanism DyPP, two-layer WoLF-PHC, beside others. Made "
        "by `python -m benchmarks report` from stored results (`benchmarks/results` has all of "
        "them, with command, date and machine). ± is half of the 95 % interval over the seeds.",
        *market_part(),
        *dypp_parts(),
        *lying_part(),
        *epsilon_part(),
        *accuracy_part(),
        *cheats_part(),
        *INSTEAD,
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
