"""Killed at any point and run again, a job ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.market.common import played, scenario, state

from noisemarket import files
from noisemarket.errors import BadInput
from noisemarket.federated import engine
from noisemarket.federated.rounds import Checkpoint
from noisemarket.files import JsonLines, write_atomic
from noisemarket.ledger import store
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market import job as market
from noisemarket.market import run_folder
from noisemarket.market.orders import prepare
from noisemarket.market.run_folder import NOISE_KEY, MarketFolder
from noisemarket.market.training import SerialEngine
from noisemarket.privacy.accountant import read_journal

pytestmark = pytest.mark.training

KEY = bytes(range(32))


def begun(folder: Path, key: bytes) -> Path:
    """A run folder in which nothing is but the noise's key, which is the same in all of them."""
    market = MarketFolder(folder)
    market.prepare()
    write_atomic(market.owners / NOISE_KEY, key, private=True)
    return folder


class Killed(BaseException):
    """Nothing in the market catches this one."""


STEPS: list[tuple[Any, str]] = [
    (store.Ledger, "append"),
    (Checkpoint, "save"),
    (JsonLines, "append"),
    (KeyPair, "create"),
    (files, "open_atomic"),
    (run_folder.RunFolder, "append"),
    (MarketFolder, "noise_key"),
    (SerialEngine, "train"),
]
"""All that leaves a trace, and the training between."""


@contextlib.contextmanager
def killed_at(number: int) -> Iterator[Counter[str]]:
    """Be killed right before the given step; counts the steps."""
    taken: Counter[str] = Counter()

    def watched(place: Any, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            if arguments and not getattr(arguments[0], "_durable", True):
                return real(*arguments, **named)  # a line of the events: nothing depends on it
            taken[name] += 1
            if taken.total() == number:
                raise Killed
            return real(*arguments, **named)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for place, name in STEPS:
            made = watched(place, name, getattr(place, name))
            patch.setattr(place, name, staticmethod(made) if name == "create" else made)
        yield taken


def small(images: Path, **more: Any) -> Any:
    given = {"owners": 2, "rounds": 2, "widths": (2, 2, 8), **more}
    return scenario(images, **given)


def sound(folder: Path, owners: int, rounds: int) -> None:
    """Each contract closed once, each round charged once."""
    with open_ledger(folder, create=False) as ledger:
        found = verify(ledger)
        assert (found.jobs, found.jobs_settled, found.contracts) == (1, 1, owners)
        kinds = Counter(entry.kind for entry in ledger.entries())
        assert kinds["paid"] + kinds["broken"] == kinds["signed"] == kinds["offered"] == owners
    charges = read_journal(folder / "owners" / "privacy.journal").charges
    assert len({(charge.owner, charge.round) for charge in charges}) == len(charges)
    assert len(charges) == owners * rounds
    assert not list(folder.rglob("*.new"))


def test_killed_before_every_single_step(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a transaction for each contract, so that signing and settling are cut in the middle."""
    monkeypatch.setattr(market, "AT_ONCE", 1)
    made, faults = small(images, noise="secure"), [{"owner": "1", "kind": "absent", "last": 1}]
    folder = begun(tmp_path / "whole", KEY)
    with killed_at(0) as steps:
        played(made, folder, faults=faults)
    whole = state(tmp_path / "whole")
    assert all(steps[name] for _, name in STEPS)
    # Ledger: opened, 2 signed, 2 rounds begun and recorded, 2 settled; journal: budgets, 2 rounds;
    # a line of metrics; receipts: 2 of signing, those of settlement.
    assert steps["append"] == 16
    for number in itertools.count(1):  # until a run has no such step: none is left out
        folder = begun(tmp_path / str(number), KEY)
        with killed_at(number) as taken, contextlib.suppress(Killed):
            played(made, folder, faults=faults)
        if taken.total() < number:
            break
        played(made, folder, faults=faults)
        assert state(folder) == whole, f"killed before step {number}"
        sound(folder, 2, 2)
    assert number > 45, f"a run took {taken} where there were {steps}"


def test_killed_again_and_again(images: Path, tmp_path: Path) -> None:
    """One folder, killed one step later at every attempt."""
    made = small(images, noise="secure")
    played(made, begun(tmp_path / "whole", KEY))
    folder = begun(tmp_path / "cut", KEY)
    for number in range(1, 1000):
        with killed_at(number):
            try:
                played(made, folder)
            except Killed:
                continue
        break
    assert number > 10
    assert state(folder) == state(tmp_path / "whole")
    sound(folder, 2, 2)


def test_a_lost_key_is_no_license_to_release_twice(images: Path, tmp_path: Path) -> None:
    """Without the key a round cannot be repeated bit by bit, and the owner would be paid less for
    it: nothing more is charged, and with the key put back the job ends as if nothing was."""
    made = small(images, noise="secure")
    folder, taken, number = tmp_path, Counter[str](), 0
    while not taken["train"]:  # until it was charged, and is cut off in the round
        number += 1
        with killed_at(number) as taken, pytest.raises(Killed):
            played(made, folder)
    key = folder / "owners" / "noise.key"
    kept, journal = key.read_bytes(), (folder / "owners" / "privacy.journal").read_bytes()
    key.unlink()
    with pytest.raises(BadInput, match=r"round 1 was already released .*the key of the noise"):
        played(made, folder)
    assert (folder / "owners" / "privacy.journal").read_bytes() == journal
    key.write_bytes(kept)
    key.chmod(0o600)
    _, outcome = played(made, folder)
    assert len(outcome.results) == 2
    assert all(statement.releases == 2 for statement in outcome.statements)
    assert all(paid > 0 for paid in outcome.payments.values())


def test_another_library_or_processor_is_told_before_anything_is_charged(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would release the round a second time, and at the cap the owner would be paid less."""
    made = small(images, noise="secure")
    taken, number = Counter[str](), 0
    while not taken["train"]:
        number += 1
        with killed_at(number) as taken, pytest.raises(Killed):
            played(made, tmp_path)
    journal = (tmp_path / "owners" / "privacy.journal").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "__version__", "99.0")
        with pytest.raises(BadInput, match=r"began with .*, and this is noisemarket 99\.0"):
            played(made, tmp_path)
    assert (tmp_path / "owners" / "privacy.journal").read_bytes() == journal
    _, outcome = played(made, tmp_path)
    assert all(statement.releases == 2 for statement in outcome.statements)


def test_another_version_of_torch_is_named_where_torch_trains(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    cnn = prepare(small(images, model="cnn")).order.job
    before = cnn.made_by
    assert f"PyTorch {torch.__version__}" in before
    assert "PyTorch" not in prepare(small(images)).order.job.made_by
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert cnn.made_by != before
    assert "PyTorch 99.0" in cnn.made_by


def test_a_damaged_key_is_told(images: Path, tmp_path: Path) -> None:
    made = small(images, noise="secure")
    with pytest.raises(Exception, match="is damaged: the job cannot be resumed"):
        played(made, begun(tmp_path, b"short"))
