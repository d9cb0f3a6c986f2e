"""The API under inputs that its own schema allows, and under some that it does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from tests.commands import PATIENCE
from tests.dashboard.served import Served, bearer

from noisemarket.dashboard.run_store import RunStore
from noisemarket.dashboard.web_app import api
from noisemarket.runfolder import this_process

schemathesis = pytest.importorskip("schemathesis")
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ROOT = Path(__file__).resolve().parents[2]
SCHEMA = schemathesis.openapi.from_dict(api(RunStore(ROOT / "build" / "schema")).openapi())
ENDLESS = r"/events$"
"""A stream that does not end by itself: tests/dashboard/test_server.py reads it."""

OPERATIONS = [one.ok() for one in SCHEMA.exclude(path_regex=ENDLESS).get_all_operations()]


@pytest.fixture(scope="module")
def served(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that is as busy as it may be, so that what is accepted starts nothing."""
    root = tmp_path_factory.mktemp("schema") / "runs"
    shutil.copytree(runs, root)
    busy = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (root / "busy").mkdir()
    process = this_process() | {"id": busy.pid, "began": psutil.Process(busy.pid).create_time()}
    status = {"state": "running", "engine": "embedded", "process": process}
    (root / "busy" / "status.json").write_text(json.dumps(status))
    one = Served(root, "--most-runs", "1")
    yield one
    one.stop()
    busy.kill()
    busy.wait()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.label.replace("/", " "))
@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
def test_no_input_breaks_the_server(operation: Any, mode: Any, served: Served) -> None:
    if mode is GenerationMode.NEGATIVE and not takes_anything(operation):
        return  # nothing can be wrong about a request without a parameter

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    def holds(case: Any) -> None:
        base = served.address.rstrip("/")
        case.call_and_validate(base_url=base, checks=CHECKS, headers=bearer(), timeout=PATIENCE)

    holds()


def takes_anything(operation: Any) -> bool:
    return bool(operation.body) or any(operation.iter_parameters())


def test_every_operation_has_its_test() -> None:
    """Ids are unique: of tests with one id pytest-xdist runs a single one."""
    assert len({one.label for one in OPERATIONS}) == len(OPERATIONS) > 10
