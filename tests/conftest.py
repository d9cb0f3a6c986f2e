"""What every test runs under: files in memory, a Numba cache of these very sources, no display,
no deadlines."""

import contextlib
import gc
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.ledger.postgres import Server

pytest_plugins = ["tests.quick"]
pytest.register_assert_rewrite("tests.conformance")

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "noisemarket"
COMPILED = ("game", "pricing")
"""The folders with functions that Numba compiles, and with all that these call."""

KEPT_CACHES = 8
IN_CI = bool(os.environ.get("CI"))
LONGEST = (
    "flower/test_processes.py",
    "flower/test_simulated_market.py",
    "study/test_calibrate.py",
    "cli/test_cli.py",
    "show/dashboard/test_browser.py",
    "show/dashboard/test_server.py",
    "market/test_crashes.py",
    "test_examples.py",
    "cli/test_run.py",
    "test_docs.py",
    "test_own_parts.py",
    "study/test_audit.py",
    "study/test_small_markets.py",
    "market/test_disk.py",
)
"""Files that take longest. They start first, or one core would wait for them at the end."""


def _cache_of_sources() -> Path:
    """The cache folder of the compiled sources as they are now.

    Numba renews a compiled function when its own file changes, not when a function that it calls
    in another file does. A folder named by the hash of all these files can hold nothing stale.
    """
    digest = hashlib.sha256()
    for path in sorted(path for name in COMPILED for path in (SOURCES / name).rglob("*.py")):
        digest.update(f"{path.relative_to(SOURCES).as_posix()}\0".encode())
        digest.update(path.read_bytes() + b"\0")
    return ROOT / ".cache" / "numba" / digest.hexdigest()[:16]


def _drop_old_caches(caches: Path) -> None:
    """Keeps the caches used last; another session may be running on one of them."""
    with contextlib.suppress(FileNotFoundError):  # that session may be tidying up, too
        by_use = sorted(caches.iterdir(), key=lambda cache: cache.stat().st_mtime, reverse=True)
        for cache in by_use[KEPT_CACHES:]:
            shutil.rmtree(cache, ignore_errors=True)


def _write_to_memory(disk: Path = Path("/dev/shm"), gigabytes: int = 4) -> None:
    """Keep the files of tests in memory, if there is room, and nobody names another place.

    A small market waits for the disk two hundred times: in all tests together that is minutes.
    """
    usable = "TMPDIR" not in os.environ and disk.is_dir() and os.access(disk, os.W_OK)
    if usable and shutil.disk_usage(disk).free > gigabytes << 30:
        os.environ["TMPDIR"] = tempfile.tempdir = str(disk)


_write_to_memory()
if "numba" in sys.modules:
    raise RuntimeError("numba was imported before tests/conftest.py could choose its cache folder")
_cache = _cache_of_sources()
_cache.mkdir(parents=True, exist_ok=True)
_cache.touch()
_drop_old_caches(_cache.parent)
os.environ["NUMBA_CACHE_DIR"] = str(_cache)
os.environ["MPLBACKEND"] = "Agg"
os.environ["NOISEMARKET_SURFACES"] = "off"  # else every small job would be measured first
# A worker of pytest-xdist has one core: threads would wait for each other, busily.
for _library in ("OMP", "MKL", "OPENBLAS"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

# Compiling takes longer than any deadline; in CI the same examples run every time.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("local", deadline=None)
settings.load_profile("ci" if IN_CI else "local")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more workers than cores, but for the quick tests: the longest files mostly wait for
    Flower, a browser or a process that is killed, and other files use the cores meanwhile."""
    from noisemarket.machine import available_cores

    return available_cores() + (0 if config.getoption("--quick") else 2)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the game once: where there is no cache yet, all workers would do so at a time."""
    options = session.config.option
    if getattr(options, "numprocesses", 0) and not options.quick and not any(_cache.iterdir()):
        import noisemarket as nm

        nm.negotiate(nm.Scenario.from_preset("market", owners=1, iterations=10, surface="printed"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; all others as they were."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


# The modules of all tests stay to the end: looking through them for garbage, again and again while
# they are imported and then in every test, took a tenth of the processor time of all tests.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


# In CI every component is there: what would skip a test elsewhere is a failure there.


def _failed_in_ci(report: Any) -> Any:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped in CI: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    return _failed_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    return _failed_in_ci((yield))


# What all workers of pytest-xdist share, such as one PostgreSQL server: the first that needs it
# makes it, and the process that started the workers ends it.

SHARED = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[SHARED] = Path(tempfile.mkdtemp(prefix="nm-shared-"))
    else:
        config.stash[SHARED] = Path(config.workerinput["shared"])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["shared"] = str(node.config.stash[SHARED])


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and SHARED in config.stash:
        if (config.stash[SHARED] / "server").exists():
            from tests.ledger.postgres import Server

            Server.shared(config.stash[SHARED]).stop()
        shutil.rmtree(config.stash[SHARED], ignore_errors=True)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and written, but not rendered, which is most of a short command's time. For
    tests of something else; every figure is rendered in at least one test."""
    leave_undrawn(monkeypatch)


def leave_undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    def write(figure: Figure, out: Any, **options: Any) -> None:
        out.write(b"not rendered")

    monkeypatch.setattr(Figure, "savefig", write)


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config) -> Path:
    """A folder for all workers, as long as the session lasts."""
    return pytestconfig.stash[SHARED]


@pytest.fixture(scope="session")
def server(shared: Path) -> "Server":
    from tests.ledger.postgres import Server

    return Server.shared(shared)
