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
from tests.show.dashboard.served import Served, bearer

from noisemarket.market.run_folder import this_process
from noisemarket.show.dashboard.run_store import RunStore
from noisemarket.show.dashboard.web_app import api

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
API = api(RunStore(ROOT / "build" / "schema")).openapi()
LABELS = [
    f"{method.upper()} {path}" for path, methods in API["paths"].items() for method in methods
]
MODES = ("positive", "negative")


# Schemathesis takes a second to import, and only the worker that runs these tests needs it.


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    """All operations of the API by their labels."""
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_dict(API)
    found = [one.ok() for one in schema.get_all_operations()]
    assert len({one.label for one in found}) == len(found)
    return {one.label: one for one in found}


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


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label.replace("/", " "))
@pytest.mark.parametrize("mode", MODES)
def test_no_input_breaks_the_server(
    label: str, mode: str, operations: dict[str, Any], served: Served
) -> None:
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    operation = operations[label]
    if mode == "negative" and not takes_anything(operation):
        return  # nothing can be wrong about a request without a parameter
    held = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]

    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    def holds(case: Any) -> None:
        base = served.address.rstrip("/")
        case.call_and_validate(base_url=base, checks=held, headers=bearer(), timeout=PATIENCE)

    holds()


def takes_anything(operation: Any) -> bool:
    return bool(operation.body) or any(operation.iter_parameters())


def test_every_operation_has_its_test(operations: dict[str, Any]) -> None:
    """Ids are unique: of tests with one id pytest-xdist runs a single one."""
    from schemathesis import GenerationMode

    assert {*operations} == set(LABELS)
    assert len(LABELS) == len(operations) > 10
    assert {mode.value for mode in GenerationMode} == set(MODES)
