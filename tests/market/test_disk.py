"""A disk that is full or may not be written to: one sentence, nothing half, and then it goes on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.processes import ROOT
from tests.market.common import state, write_images
from tests.market.disk import FEW

from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify

pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX"),
]


def attempts(kind: str, images: Path, folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.market.disk", kind, str(images), str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_told(one: dict[str, Any]) -> None:
    assert one["code"] in (1, 2), one
    (said,) = one["said"]
    assert said.startswith("noisemarket: ")
    assert "cannot be" in said
    assert said.endswith(".")
    assert one["out"] == ""


def came_to(folder: Path) -> tuple[Any, ...]:
    """What does not depend on the key of the noise."""
    whole = state(folder)
    agreed = {owner: (terms[:3], found[:3]) for owner, (terms, found) in whole["owners"].items()}
    return whole["kinds"], agreed, [charge[:2] for charge in whole["charges"]]


def test_a_full_disk(images: Path, tmp_path: Path) -> None:
    told = attempts("full", images, tmp_path)
    for one in told:
        if one["name"] == "room":
            assert (one["code"], one["said"]) == (0, []), one
        else:
            assert_told(one)
            assert f"{FEW[int(one['name'])]} cannot be written" in one["said"][0]
    assert [one["name"] for one in told].count("room") == len(FEW)
    assert len(told) == 3 * len(FEW)  # begun and resumed in vain, then there was room
    for few in FEW:
        assert came_to(tmp_path / str(few)) == came_to(tmp_path / "run")
        assert json.loads((tmp_path / str(few) / "status.json").read_text())["state"] == "complete"
        with open_ledger(tmp_path / str(few), create=False) as ledger:
            verify(ledger)


def test_a_run_folder_that_may_not_be_written_to() -> None:
    folder = Path(tempfile.mkdtemp())  # one that any user may enter
    try:
        (folder / "images").mkdir()
        images = write_images(folder / "images")
        (folder / "place").mkdir()
        for path in (folder, images, *images.iterdir()):
            path.chmod(path.stat().st_mode | 0o555)
        resumed, begun, writable = attempts("read-only", images, folder / "place")
        for one in (resumed, begun):
            assert_told(one)
            assert "Permission denied" in one["said"][0] or "read-only" in one["said"][0]
        assert writable["code"] == 0, writable
    finally:
        shutil.rmtree(folder)
