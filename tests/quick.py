"""What makes a test quick, and what ``pytest --quick`` (``make quick``) leaves out.

A test is quick unless a marker says what it needs: ``process``, ``training``, ``compiled`` or
``slow`` (see pyproject.toml). A file marks all its tests by ``pytestmark``. Under
``--quick`` a test that needs a process or compiled code and does not say so fails.
"""

from __future__ import annotations

import multiprocessing.process
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

TESTS = Path(__file__).resolve().parent
WHOLE_FILE = re.compile(
    r"^pytestmark = \[?\s*pytest\.mark\.(process|training|compiled|slow)\b", re.MULTILINE
)
"""The line by which a test file marks all its tests."""

NEEDS_BY_FIXTURE = {"server": "process"}
QUICK_EXAMPLES = 20
"""How often a quick test of hypothesis is tried; ``make test`` tries it a hundred times."""

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
        settings.register_profile("quick", max_examples=QUICK_EXAMPLES)
        settings.load_profile("quick")
        _watch_processes()
        _watch_compilation()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what is left out as a whole."""
    if config.getoption("--quick") and collection_path.suffix == ".py":
        return bool(WHOLE_FILE.search(collection_path.read_text(encoding="utf-8"))) or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker in _markers(item):
            item.add_marker(marker)
    if config.getoption("--quick"):
        left_out = [item for item in items if _is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_left_out(item)]


def _markers(item: pytest.Item) -> Iterator[str]:
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
