"""An owner computes by itself whether its uploads helped; no curator can choose along what."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.market.common import here, job_name, played, scenario
from tests.privacy.whole_standing import standing_of

from noisemarket.cli import main
from noisemarket.errors import BadInput
from noisemarket.federated.reference import Directions, directions_digest
from noisemarket.files import load_arrays, save_arrays
from noisemarket.ledger.queries import account, contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.begun_rounds import begun_rounds
from noisemarket.market.serial_engine import SerialEngine
from noisemarket.owner.own_standing import directions_in, own_standing, sent_in
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.training

FREE_RIDER = "1"


@pytest.fixture(scope="module")
def made(images: Path) -> Scenario:
    faults = [
        {"owner": FREE_RIDER, "kind": "free_rider"},
        {"owner": "0", "kind": "absent", "last": 1},
    ]
    terms = {"sigma_max": 0.1, "quality_value": 2.0, "privacy_cost": 3.8}
    given = {"owners": 3, "rounds": 3, "reference_records": 40, "faults": faults, **terms}
    return scenario(images, **given)


@pytest.fixture(scope="module")
def settled(made: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("settled") / "run"
    played(made, folder)
    return folder


@pytest.fixture
def run(settled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(settled, tmp_path / "run"))


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the command."""
    with pytest.raises(SystemExit) as end:
        main(["owner", "standing", *words, "--json"])
    said = capsys.readouterr()
    return int(end.value.code or 0), json.loads(said.out) if said.out else {"said": said.err}


def test_every_owner_finds_what_the_curator_says(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against the ledger's evidence, and against one calculation over all rounds at once."""
    folders = run / "owners" / "uploads", run / "curator" / "reference"
    with open_ledger(run, create=False) as ledger:
        accounts = [account(ledger, one.contract.id) for one in contracts(ledger)]
    assert len(accounts) == 3
    for one in accounts:
        owner = one.contract.owner
        code, found = shown(capsys, str(run), "--owner", owner)
        assert (code, found["agrees"]) == (0, True)
        rounds = [2, 3] if owner == "0" else [1, 2, 3]
        assert found["curator_says"]["rounds"] == rounds
        assert (found["rounds"], found["sent"]) == (len(rounds), len(rounds))
        said = one.evidence["usefulness"]
        assert (said["rounds"], said["best"]) == (len(rounds), found["curator_says"]["best"])
        sent = [sent_in(folders[0], number, owner) for number in rounds]
        along = [directions_in(folders[1], number) for number in rounds]
        uploads = np.stack([each.upload for each in sent if each is not None])
        rows = np.stack([each for each in along if each is not None])
        whole = standing_of(uploads, rows, one.contract.sigma)
        assert found["best"] == pytest.approx(whole.best, rel=1e-9)
        assert found["against"] == pytest.approx(whole.against, rel=1e-9)
        assert found["useful"] == (one.state == "paid")
    assert main_says(capsys, str(run), "--owner", "2").endswith("which is the same.\n")


def main_says(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        main(["owner", "standing", *words])
    return capsys.readouterr().out


def test_a_curator_that_says_otherwise_is_found(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "owners" / "owner-2" / "statement.json"
    said = json.loads(path.read_text())
    said["usefulness"]["best"] -= 0.01
    path.write_text(json.dumps(said))
    assert shown(capsys, str(run), "--owner", "2")[0] == 1
    assert "NOT the same" in main_says(capsys, str(run), "--owner", "2")


def test_other_directions_than_those_that_were_named_are_found(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "curator" / "reference" / "round-0002.npz"
    rows = load_arrays(path)["directions"]
    save_arrays(path, directions=-rows)
    code, found = shown(capsys, str(run), "--owner", "2")
    assert code == 2
    assert "round 2: are not those that the curator named before the upload" in found["said"]
    for damage, said in ((b"x", "cannot be read"), (None, "has none of round 2")):
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
        assert said in shown(capsys, str(run), "--owner", "2")[1]["said"]


def test_the_digests_were_on_the_ledger_before_the_uploads(settled: Path) -> None:
    with open_ledger(settled, create=False) as ledger:
        verify(ledger)
        begun = begun_rounds(ledger, job_name(settled))
        order = [
            (entry.kind, entry.content()["round"])
            for entry in ledger.entries(kinds=["begun", "delivered", "missed"])
        ]
    assert sorted(begun) == [1, 2, 3]
    for number, said in begun.items():
        rows = directions_in(settled / "curator" / "reference", number)
        assert rows is not None
        assert said == {"round": number, "owners": 3, "reference": directions_digest(rows)}
        first = min(order.index(one) for one in order if one[1] == number)
        assert order[first] == ("begun", number)


def test_what_is_kept_is_for_the_owners_alone(settled: Path) -> None:
    folder = settled / "owners" / "uploads"
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the owner: a run folder has many"),
        (["--owner", "nobody"], "has no contract of a settled job"),
    ],
)
def test_what_cannot_be_computed_is_told(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    code, found = shown(capsys, str(run), *words)
    assert code == 2
    assert said in found["said"]
    code, found = shown(capsys, str(run / "curator"))
    assert code == 2
    assert "is neither an owner's folder nor a run folder" in found["said"]
    shutil.rmtree(run / "owners" / "uploads")
    code, found = shown(capsys, str(run), "--owner", "2")
    assert code == 2
    assert "has nothing that was sent" in found["said"]


def test_a_round_that_was_cut_off_keeps_its_directions_also_on_another_machine(
    made: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, they may differ in the last bit; but their digest is with the owners already."""

    class CutOff(SerialEngine):
        def train(self, round_number: int, *given: Any) -> Any:
            if round_number == 2:
                raise KeyboardInterrupt
            return super().train(round_number, *given)

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        list(here(made, run, engine=CutOff))
    at = Directions.at
    monkeypatch.setattr(Directions, "at", lambda *given: at(*given) * np.float32(1.0000002))
    lost = Path(shutil.copytree(run, tmp_path / "lost"))
    (lost / "curator" / "reference" / "round-0002.npz").unlink()
    with pytest.raises(BadInput, match="lacks the directions that round 2 began with"):
        played(made, lost)
    before = directions_in(run / "curator" / "reference", 2)
    played(made, run)
    assert np.array_equal(before, directions_in(run / "curator" / "reference", 2))
    with open_ledger(run, create=False) as ledger:
        assert list(begun_rounds(ledger, job_name(run))) == [1, 2, 3]


def test_nothing_counts_where_nothing_was_sent(settled: Path) -> None:
    folders = settled / "owners" / "uploads", settled / "curator" / "reference"
    assert own_standing(*folders, "2", 0.1, []).rounds == 0
    with pytest.raises(BadInput, match="has none of 0 in round 1"):
        own_standing(*folders, "0", 0.1, [1])
