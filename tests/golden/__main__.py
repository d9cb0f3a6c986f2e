"""``python -m tests.golden``: compare, or with ``--write`` rewrite, the golden files."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path


def main() -> int:
    import tests.conftest  # noqa: F401 - first: one thread, and where Numba keeps what it compiled
    from tests.golden import comparing
    from tests.golden.cases import CASES, records

    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"all, or some of: {', '.join(CASES)}")
    parser.add_argument("--write", action="store_true", help="rewrite the golden files")
    given = parser.parse_args()
    if unknown := set(given.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    failed = False
    for case in given.cases or CASES:
        with tempfile.TemporaryDirectory() as folder:
            for name, record in records(case, Path(folder)).items():
                differ = comparing.complaint(name, record) if comparing.exists(name) else "new"
                print(f"{name}: {differ or 'unchanged'}")
                failed |= bool(differ)
                if given.write:
                    comparing.write(name, record)
    return int(failed and not given.write)


if __name__ == "__main__":
    sys.exit(main())
