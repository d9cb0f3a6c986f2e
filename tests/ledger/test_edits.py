"""The tamper campaign: what is found with the curator's key, and what only a receipt can tell."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.common import NOW, key
from tests.ledger.edits import BROKEN, CUT_OFF, EDITS, JOB, says
from tests.ledger.tampering import read, rewrite, write

from noisemarket.errors import LedgerBroken
from noisemarket.ledger.store import Ledger, open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.offers import settle

CURATOR = key("curator")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("edits") / "ledger.sqlite")


@pytest.fixture(scope="module")
def ledger(place: str) -> Iterator[Ledger]:
    with open_ledger(place, clock=lambda: NOW, curator=CURATOR) as ledger:
        JOB.begin(ledger)
        settle(ledger, JOB.name, JOB.verdicts(BROKEN))
        yield ledger


def test_the_campaign_has_48_edits() -> None:
    assert len(EDITS) == 48
    assert set(CUT_OFF) <= set(EDITS)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found(ledger: Ledger, place: str, name: str) -> None:
    kept, head = read(place), ledger.head()
    verify(ledger, head, curator_keys=[CURATOR.public_hex])
    try:
        rewrite(place, EDITS[name])
        assert read(place) != kept
        if name in CUT_OFF:
            verify(ledger, curator_keys=[CURATOR.public_hex])
        else:
            with pytest.raises(LedgerBroken):
                verify(ledger, curator_keys=[CURATOR.public_hex])
        with pytest.raises(LedgerBroken):
            verify(ledger, head)
    finally:
        write(place, kept)


def test_a_wrong_once_key_is_found(ledger: Ledger, place: str) -> None:
    """Even if the curator itself wrote it: an entry under another key could be recorded twice."""
    kept = read(place)
    try:
        for row in kept:
            at = row["seq"] - 1
            rewrite(place, lambda rows, at=at: rows[at].update(once="again"), CURATOR)
            broken = rf"entry {at + 1} .* does not have the once key of its kind"
            with pytest.raises(LedgerBroken, match=broken):
                verify(ledger)
            write(place, kept)
    finally:
        write(place, kept)


def test_a_cut_in_the_middle_of_a_transaction_is_found(ledger: Ledger, place: str) -> None:
    kept = read(place)
    try:
        for count in range(1, len(kept)):
            rewrite(place, lambda rows, count=count: rows.__delitem__(slice(count, None)))
            if kept[count - 1]["kind"] == "sealed":
                verify(ledger, curator_keys=[CURATOR.public_hex])
            else:
                with pytest.raises(LedgerBroken, match="is not sealed by the curator"):
                    verify(ledger, curator_keys=[CURATOR.public_hex])
            write(place, kept)
    finally:
        write(place, kept)


@pytest.mark.parametrize(
    "about", [[], None, {"currency": ["x"]}, {"currency": None}, {"currency": "a\n"}]
)
def test_a_curator_that_calls_money_anything_but_a_word_is_found(
    ledger: Ledger, place: str, about: Any
) -> None:
    kept = read(place)
    try:
        rewrite(place, says("opened", about=about), CURATOR)
        with pytest.raises(LedgerBroken, match=r"entry 1 .* not a short word"):
            verify(ledger)
    finally:
        write(place, kept)


def test_only_the_curator_can_take_a_word_back_and_a_head_tells(ledger: Ledger, place: str) -> None:
    """With its key a curator can write history anew: who has a head or a receipt can prove it."""
    kept, head = read(place), ledger.head()
    try:
        rewrite(place, EDITS["kept becomes broken"], CURATOR)
        verify(ledger, curator_keys=[CURATOR.public_hex])
        with pytest.raises(LedgerBroken, match=f"entry {head.count} is not the one"):
            verify(ledger, head)
    finally:
        write(place, kept)


def test_the_file_is_as_it_was(ledger: Ledger, place: str) -> None:
    assert verify(ledger, curator_keys=[CURATOR.public_hex]).entries == len(read(place))
    assert Path(place).exists()
