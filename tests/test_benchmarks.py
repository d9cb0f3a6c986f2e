"""Every benchmark can be imported and asked for help, peers apart that are not installed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
MODULES = sorted(
    ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts)
    for path in FOLDER.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)
OPTIONAL = ("flwr", "opacus", "open_spiel", "pfl", "ray", "torch")


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, "{}"])  # some contestants read their task at once
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name not in OPTIONAL:
            raise
        pytest.skip(f"{missing.name} is not installed")
