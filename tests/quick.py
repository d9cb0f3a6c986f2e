"""What makes a test quick, and what ``pytest --quick`` (``make quick``) leaves out.

A test is quick unless a marker says what it needs: ``process``, ``training``, ``compiled`` or
``slow`` (see pyproject.toml). A whole file or folder gets its marker from ``NEEDS``. Under
``--quick`` a test that needs a process or compiled code and does not say so fails.
"""

from __future__ import annotations

import multiprocessing.process
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
NEEDS = {
    "audit/test_audit.py": "training",
    "calibration/test_calibrate.py": "training",
    "calibration/test_fit.py": "slow",
    "cli/test_cli.py": "process",
    "cli/test_compare.py": "process",
    "cli/test_engines.py": "training",
    "cli/test_owner_files.py": "training",
    "cli/test_run.py": "process",
    "cli/test_run_here.py": "training",
    "cli/test_train.py": "process",
    "comparison/test_campaign.py": "training",
    "federated/test_clipping.py": "training",
    "federated/test_engine.py": "process",
    "federated/test_engine_conformance.py": "process",
    "federated/test_model.py": "training",
    "federated/test_protection_conformance.py": "training",
    "federated/test_shard_training.py": "training",
    "dashboard/test_browser.py": "process",
    "dashboard/test_live.py": "slow",
    "dashboard/test_runs.py": "process",
    "dashboard/test_schema.py": "process",
    "dashboard/test_server.py": "process",
    "flower": "process",
    "game/test_equilibrium.py": "compiled",
    "game/test_exploitability.py": "compiled",
    "game/test_population.py": "slow",
    "learning/test_bisection.py": "compiled",
    "learning/test_bisection_players.py": "compiled",
    "learning/test_draws.py": "slow",
    "learning/test_known_games.py": "compiled",
    "learning/test_laws.py": "compiled",
    "learning/test_rules.py": "compiled",
    "ledger/test_faults.py": "slow",
    "ledger/test_store.py": "slow",
    "market": "training",
    "mechanisms/test_bisection_reach.py": "compiled",
    "mechanisms/test_clock.py": "slow",
    "mechanisms/test_continuous_menu.py": "slow",
    "mechanisms/test_lying.py": "slow",
    "mechanisms/test_learned.py": "compiled",
    "mechanisms/test_market_order.py": "compiled",
    "mechanisms/test_mechanism_conformance.py": "compiled",
    "mechanisms/test_portfolio.py": "slow",
    "mechanisms/test_sealed_bids.py": "slow",
    "test_examples.py": "process",
    "test_negotiation.py": "compiled",
    "test_public_examples.py": "compiled",
    "test_without_torch.py": "process",
    "training": "training",
}
"""The marker of a whole folder or file, by its path below tests/."""

NEEDS_BY_FIXTURE = {"server": "process"}
MARKERS = ("process", "training", "compiled", "slow")
HARMLESS = {"fc-list", "uname"}
"""What Matplotlib starts once, to list fonts, and Python's platform, to name the processor."""

_offences: list[str] = []
"""The processes started and functions compiled since the last test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out every test that needs a process, training, compiled code or much time",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        _watch_processes()
        _watch_compilation()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what is left out as a whole."""
    if config.getoption("--quick") and collection_path.is_relative_to(TESTS):
        return True if collection_path.relative_to(TESTS).as_posix() in NEEDS else None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker in _markers(item):
            item.add_marker(marker)
    if config.getoption("--quick"):
        left_out = [item for item in items if _is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_left_out(item)]


@cache
def _markers_of(file: Path) -> list[str]:
    below = file.relative_to(TESTS)
    names = [path.as_posix() for path in (below, *below.parents)]
    return [NEEDS[name] for name in names if name in NEEDS]


def _markers(item: pytest.Item) -> Iterator[str]:
    yield from _markers_of(item.path)
    for fixture in getattr(item, "fixturenames", ()):
        if fixture in NEEDS_BY_FIXTURE:
            yield NEEDS_BY_FIXTURE[fixture]


def _is_left_out(item: pytest.Item) -> bool:
    return any(
        item.get_closest_marker(name) for name in ("process", "training", "compiled", "slow")
    )


@pytest.fixture(autouse=True)
def _quick_as_it_says(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.config.getoption("--quick"):
        offences = _offences.copy()
        _offences.clear()
        assert not offences, (
            f"This test is not quick: it {', '.join(offences)}. Mark it with "
            "@pytest.mark.process or @pytest.mark.compiled."
        )


def _watch_processes() -> None:
    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"subprocess.Popen", "os.posix_spawn"}:
            program = Path(str(arguments[0])).name
            if program not in HARMLESS:
                _offences.append(f"starts {program}")
        elif event in {"os.fork", "os.forkpty", "os.system", "pty.spawn"}:
            _offences.append(f"calls {event}")

    sys.addaudithook(hear)
    start = multiprocessing.process.BaseProcess.start

    def recorded(process: multiprocessing.process.BaseProcess) -> None:
        _offences.append(f"starts {process.name}")
        start(process)

    multiprocessing.process.BaseProcess.start = recorded  # type: ignore[method-assign]


def _watch_compilation() -> None:
    """Without a cache on disk, compiled code is always compiled from scratch, and so is noticed."""
    from numba.core import config, event

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, begun: event.Event) -> None:
            _offences.append(f"compiles {begun.data['dispatcher'].py_func.__name__}")

        def on_end(self, ended: event.Event) -> None:
            pass

    event.register("numba:compile", Listener())
    config.CACHE_DIR = tempfile.mkdtemp(prefix="nm-numba-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        from numba.core import config as numba

        shutil.rmtree(numba.CACHE_DIR, ignore_errors=True)
