"""Contracts for an app of one's own: what an owner signs, and what goes on record."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.common import changed

from noisemarket.errors import BadInput, LedgerConflict, NoisemarketError
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.market.offers import draft_clipped, record_contracts
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import Declined, OwnerFolder

JOB, CLIP, SIGMA, ROUNDS, PRICE, SIZE = "job-1", 2.0, 0.5, 3, 1_000_000, 1200


def contract_of(owner: OwnerFolder, curator: KeyPair, **more: Any) -> Contract:
    key = KeyPair.obtain(owner.path).public_hex
    deal = {"saving": 0.1, "sigma": SIGMA, "payment": PRICE}
    settings = {"clip": CLIP, "parameters": SIZE, "rounds": ROUNDS, "simulated": True}
    return draft_clipped(JOB, owner.name, key, curator.public_hex, **deal | settings | more)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"owner": "bob"}, "agreed to other owner"),
        ({"protection": "dp_sgd", "shards": None}, "sharded with one shard"),
        ({"shards": 2}, "sharded with one shard"),
        ({"rho_per_round": 1.0}, "agreed to other rho_per_round$"),
        ({"rho_cap": 1e9}, "agreed to other rho_cap"),
        ({"epsilon": 0.1}, "agreed to other epsilon$"),
        ({"whole_owner": False}, "agreed to other whole_owner$"),
        ({"offered_at": "2020-01-01T00:00:00+00:00", "expires_at": "2020-01-02T00:00:00+00:00"},
         "expired"),
    ],
)  # fmt: skip
def test_an_owner_signs_nothing_that_costs_more_than_it_says(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    owner, curator = OwnerFolder("anna", tmp_path / "anna"), KeyPair.obtain(tmp_path / "curator")
    good = contract_of(owner, curator)
    accept = OwnerAgent(owner).accept_without_game
    with pytest.raises(NoisemarketError, match=words):
        accept(changed(good, **changes), SIZE, math.inf)
    with pytest.raises(Declined, match="agreed to other rho_per_round"):
        accept(good, 10**9, math.inf)
    with pytest.raises(Declined, match="more privacy than the owner sells"):
        accept(good, SIZE, good.rho_cap / 2)
    assert not (tmp_path / "anna" / "jobs").exists()  # it has agreed to nothing


def test_contracts_go_on_record_with_both_signatures_only(tmp_path: Path) -> None:
    owner, curator = OwnerFolder("anna", tmp_path / "anna"), KeyPair.obtain(tmp_path / "curator")
    contract = contract_of(owner, curator)
    with open_ledger(tmp_path / "ledger.sqlite", curator=curator) as ledger:
        for accepted, words in (([], "at least one"), ([(contract, "")] * 2, "for each owner")):
            with pytest.raises(BadInput, match=words):
                record_contracts(ledger, curator, PRICE, accepted)
        with pytest.raises(LedgerConflict, match="signature"):
            record_contracts(ledger, curator, PRICE, [(contract, "0" * 128)])


def test_the_page_shows_how_a_contract_is_made(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "examples" / "flower-own-model" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if "draft_clipped(" in block]
    (tmp_path / "job").mkdir()
    exec(code.replace("/data", str(tmp_path)), {})
    with open_ledger(tmp_path / "job" / "ledger.sqlite", create=False) as ledger:
        (one,) = contracts(ledger)
        assert (one.contract.owner, one.state) == ("north", "signed")
        assert one.contract.rounds == 8
    terms, _ = OwnerFolder("north", tmp_path / "north").terms("job-1")
    assert (terms.sigma, terms.protection, terms.clip) == (0.4, "sharded", 1.0)
