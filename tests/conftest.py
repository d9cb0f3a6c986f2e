"""What every test runs under: a Numba cache of these very sources, no display, no deadlines."""

import contextlib
import hashlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "noisemarket"
KEPT_CACHES = 8
LONGEST = (
    "flower/test_market_processes.py",
    "flower/test_deployment.py",
    "flower/test_serverapp_killed.py",
    "market/test_crashes.py",
    "cli/test_train.py",
    "cli/test_run.py",
)
"""Files that take minutes. They start first, or one core would wait for them at the end."""


def _cache_of_sources() -> Path:
    """The cache folder of the sources as they are now.

    Numba renews a compiled function when its own file changes, not when a function that it calls
    in another file does. A folder named by the hash of all sources can hold nothing stale.
    """
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):
        digest.update(f"{path.relative_to(SOURCES).as_posix()}\0".encode())
        digest.update(path.read_bytes() + b"\0")
    return ROOT / ".cache" / "numba" / digest.hexdigest()[:16]


def _drop_old_caches(caches: Path) -> None:
    """Keeps the caches used last; another session may be running on one of them."""
    with contextlib.suppress(FileNotFoundError):  # that session may be tidying up, too
        by_use = sorted(caches.iterdir(), key=lambda cache: cache.stat().st_mtime, reverse=True)
        for cache in by_use[KEPT_CACHES:]:
            shutil.rmtree(cache, ignore_errors=True)


if "numba" in sys.modules:
    raise RuntimeError("numba was imported before tests/conftest.py could choose its cache folder")
_cache = _cache_of_sources()
_cache.mkdir(parents=True, exist_ok=True)
_cache.touch()
_drop_old_caches(_cache.parent)
os.environ["NUMBA_CACHE_DIR"] = str(_cache)
os.environ["MPLBACKEND"] = "Agg"

# Compiling takes longer than any deadline; in CI the same examples run every time.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("local", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; all others as they were."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))
