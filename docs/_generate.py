"""Write the pages of ``docs/reference`` that are read off the code; ``--check`` only compares.

    python docs/_generate.py
    python docs/_generate.py --check
    python docs/_generate.py --count    # the settings that a user can meet

The pages are committed, so that they can be read without building the site. The build of the site
writes them anew, and ``tests/test_docs.py`` says when they are not current.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _reference.commands import commands_page
from _reference.output import output_page
from _reference.python import python_page
from _reference.scenario import scenario_page
from _reference.settings import count

FOLDER = Path(__file__).resolve().parent / "reference"
PAGES = {
    "commands.md": commands_page,
    "scenario.md": scenario_page,
    "output.md": output_page,
    "python.md": python_page,
}


def main(check: bool = False) -> list[str]:
    """Write the pages that are not current, or only name them."""
    stale = []
    for name, make in PAGES.items():
        text, path = make(), FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    if "--count" in sys.argv[1:]:
        print(count())
        sys.exit()
    only_check = "--check" in sys.argv[1:]
    found = main(only_check)
    if found and only_check:
        sys.exit(f"not current: {', '.join(found)}. Run: python docs/_generate.py")
