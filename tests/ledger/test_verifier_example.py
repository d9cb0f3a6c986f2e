"""The verifier of the examples, which does without this package, on real exports."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ledger.common import NOW, key
from tests.ledger.edits import BROKEN, CUT_OFF, EDITS, JOB
from tests.ledger.processes import ROOT
from tests.ledger.tampering import read, rewrite, write

from noisemarket.ledger.store import open_ledger
from noisemarket.market.offers import settle
from noisemarket.show.ledger_report import write_chain

VERIFIER = ROOT / "examples" / "verify_ledger.py"
CURATOR = key("curator")


def verifier() -> str:
    return VERIFIER.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("page") / "ledger.sqlite")
    with open_ledger(place, clock=lambda: NOW, curator=CURATOR) as ledger:
        JOB.begin(ledger)
        settle(ledger, JOB.name, JOB.verdicts(BROKEN))
    return place


def exported(place: str) -> str:
    file = Path(place).with_name("chain.json")
    with open_ledger(place, create=False) as ledger:
        write_chain(ledger, str(file))
    return str(file)


def judged(
    file: str, monkeypatch: pytest.MonkeyPatch, curator: str = CURATOR.public_hex
) -> str | None:
    """What the verifier objects to; None if it finds the export sound."""
    monkeypatch.setattr(sys, "argv", ["verify.py", file, curator])
    try:
        exec(compile(verifier(), "verify.py", "exec"), {})
    except SystemExit as ended:
        return str(ended.code)
    return None


def test_it_uses_nothing_of_ours() -> None:
    assert not re.search(r"^\s*(import|from) noisemarket", verifier(), re.M)


@pytest.mark.process
def test_it_runs_as_it_stands(place: str, tmp_path: Path) -> None:
    (tmp_path / "verify.py").write_text(verifier(), encoding="utf-8")
    file = exported(place)
    command = [sys.executable, "-I", "verify.py", file, CURATOR.public_hex]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    head = json.loads(Path(file).read_text(encoding="utf-8"))["head"]
    assert done.stdout == f"Sound: {head.split(':')[0]} entries, 16.666666 paid. Head: {head}\n"


@pytest.mark.parametrize("name", EDITS)
def test_it_finds_the_edits(place: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = read(place)
    try:
        rewrite(place, EDITS[name])
        found = judged(exported(place), monkeypatch)
    finally:
        write(place, kept)
    assert (found is None) == (name in CUT_OFF), found


def test_it_finds_an_edit_of_the_export_and_another_curator(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = exported(place)
    assert judged(file, monkeypatch) is None
    other = judged(file, monkeypatch, key("mallory").public_hex)
    assert other is not None
    assert "another curator" in other
    document = json.loads(Path(file).read_text(encoding="utf-8"))
    document["entries"][7]["recorded_at"] = "2031-01-01T00:00:00+00:00"
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document), encoding="utf-8")
    assert judged(str(changed), monkeypatch) == "entry 8: was changed"
