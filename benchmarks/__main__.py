"""Run a benchmark by name, or list them: ``python -m benchmarks [NAME [OPTIONS]]``."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def benchmarks() -> dict[str, str]:
    """Every benchmark with the first line of its docstring."""
    found = {}
    for file in sorted(HERE.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[file.stem.replace("_", "-")] = (ast.get_docstring(tree) or "").splitlines()[0]
    return found


if __name__ == "__main__":
    known = benchmarks()
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        for name, line in known.items():
            print(f"{name:14} {line}")
        sys.exit(len(sys.argv) > 1)
    name = sys.argv.pop(1)
    sys.argv[0] = f"python -m benchmarks {name}"
    importlib.import_module(f"benchmarks.{name.replace('-', '_')}").main()
