"""What holds for a job: one process at a time, a checkpoint and a journal of its own, its names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.ledger.postgres import Server
from tests.market.common import (
    OWNERS,
    events,
    here,
    played,
    scenario,
    state,
    words,
)

from noisemarket.cli import main
from noisemarket.errors import BadInput
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.queries import contracts, jobs
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market import job as market_job
from noisemarket.market.events import (
    RoundTrained,
    Settled,
)
from noisemarket.market.job import run_market
from noisemarket.market.training import SerialEngine
from noisemarket.owner.folder import owner_folder
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.training


@pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")
def test_a_job_is_run_by_one_process_at_a_time(images: Path, tmp_path: Path) -> None:
    first = events(scenario(images), tmp_path)
    next(first)
    with pytest.raises(BadInput, match="in use by another run"):
        next(events(scenario(images), tmp_path))
    for event in first:
        if isinstance(event, RoundTrained):
            break
    code = (
        "import sys\nfrom pathlib import Path\nfrom noisemarket.errors import BadInput\n"
        "from noisemarket.files import exclusive\n"
        "try:\n    exclusive(Path(sys.argv[1]) / 'curator', 'folder')\n"
        "except BadInput as problem:\n    print(problem)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "in use by another run" in said.stdout
    first.close()
    told, _ = played(scenario(images), tmp_path)  # let go when the first was closed
    assert isinstance(told[-1], Settled)


def stopped(made: Scenario, folder: Path) -> None:
    """Run a job to the end of its first round."""
    stream = events(made, folder)
    for event in stream:
        if isinstance(event, RoundTrained):
            break
    stream.close()


def test_a_checkpoint_is_of_one_job(images: Path, tmp_path: Path) -> None:
    made = scenario(images, owners=2)
    stopped(made, tmp_path)
    (tmp_path / "market.json").unlink()
    with pytest.raises(BadInput, match=r"is not of the job in market\.json"):
        played(made, tmp_path)
    with open_ledger(tmp_path) as ledger:
        assert len(list(jobs(ledger))) == 1


def test_a_lost_journal_is_no_empty_one(images: Path, tmp_path: Path) -> None:
    made = scenario(images, owners=2)
    stopped(made, tmp_path / "half")
    played(made, tmp_path / "whole")
    for name in ("half", "whole"):
        journal = tmp_path / name / "owners" / "privacy.journal"
        kept = journal.read_bytes()
        for left in (b"", kept.splitlines(keepends=True)[0]):
            journal.write_bytes(left)
            with pytest.raises(BadInput, match="lacks the charges of round 1"):
                played(made, tmp_path / name)
        journal.write_bytes(kept)
        played(made, tmp_path / name)


def test_a_lost_journal_is_told_in_one_sentence(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(market_job, "run_market", here)
    with pytest.raises(SystemExit) as end:
        main([*words(images, rounds=1), "--out", str(tmp_path / "run")])
    assert not end.value.code
    (tmp_path / "run" / "owners" / "privacy.journal").unlink()
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["run", "--no-baselines", "--resume", str(tmp_path / "run")])
    assert end.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("noisemarket: journal ")
    assert said.endswith("lacks the charges of round 1: give that job's whole journal.")


def test_odd_names_have_folders_of_their_own(tmp_path: Path) -> None:
    names = ["../up", "a/b", "a%2Fb", "", ".", "x" * 300, "x" * 299 + "y", "ü", "Name", "name "]
    places = [owner_folder(tmp_path, name) for name in names]
    assert len(set(places)) == len(names)
    for place in places:
        assert place.parent == tmp_path
        assert len(place.name) < 200
        place.mkdir()


# Elsewhere


def test_on_postgresql(images: Path, tmp_path: Path, server: Server) -> None:
    place = server.new_place()
    folders = [tmp_path / name for name in ("first", "second", "sqlite")]
    for folder in folders:
        folder.mkdir()
        ledger = "" if folder.name == "sqlite" else place
        played(scenario(images, ledger=ledger, rounds=2), folder)
    first, second, sqlite = (state(folder) for folder in folders)
    assert first == second == sqlite
    assert not (folders[0] / "ledger.sqlite").exists()
    with open_ledger(place, create=False) as ledger:
        found = verify(ledger)
        assert (found.jobs_settled, found.contracts_paid) == (2, 2 * OWNERS)


def test_a_curator_may_have_one_key_for_all_its_jobs(images: Path, tmp_path: Path) -> None:
    key = KeyPair.create(tmp_path / "key").public_hex
    for name in ("first", "second"):
        here(scenario(images), tmp_path / name, curator=tmp_path / "key").finish()
        assert not (tmp_path / name / "curator" / "signing-key.pem").exists()
        with open_ledger(tmp_path / name, create=False) as ledger:
            assert {one.contract.curator_key for one in contracts(ledger)} == {key}


def test_the_engine_of_these_tests_is_used(images: Path, tmp_path: Path) -> None:
    made: list[SerialEngine] = []

    def engine(job):  # type: ignore[no-untyped-def]
        made.append(SerialEngine(job))
        return made[-1]

    stream = run_market(scenario(images), tmp_path, engine=engine)
    while not made:
        next(stream)
    stream.close()
    assert made[0].first_weights().size > 1000
