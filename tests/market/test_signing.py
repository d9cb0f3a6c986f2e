"""What an owner and the curator sign, and what neither does."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ledger.common import changed
from tests.market.common import (
    OWNERS,
    ROUNDS,
    events,
    played,
    scenario,
)

from noisemarket.errors import BadInput, BadSignature, LedgerConflict
from noisemarket.game.environment import Contracts
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import Head
from noisemarket.ledger.keys import KeyPair, SignedContract
from noisemarket.ledger.money import to_micro
from noisemarket.ledger.receipts import Receipt
from noisemarket.ledger.store import Ledger, open_ledger
from noisemarket.market.events import (
    Signed,
)
from noisemarket.market.negotiation import negotiate
from noisemarket.market.offers import countersign, work_of
from noisemarket.market.orders import prepare
from noisemarket.market.run_folder import MarketFolder
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import Declined, OwnerFolder, owner_folder
from noisemarket.owner.terms import contract_of
from noisemarket.privacy.accountant import PrivacyBudget

pytestmark = pytest.mark.training


@dataclass(frozen=True)
class Parties:
    """A curator and an owner, with all that it takes to make their contract."""

    curator: KeyPair
    owner: OwnerAgent
    stated: dict[str, Any]
    budget: PrivacyBudget

    def draft(self) -> Contract:
        return contract_of(self.stated, self.budget, 20)

    def sign(self, contract: Contract) -> str:
        """The owner's signature, if that is what it agreed to."""
        return self.owner.sign(contract, [self.draft()], self.budget, math.inf)


def parties(images: Path, folder: Path) -> Parties:
    market = prepare(scenario(images, rounds=2))
    done = negotiate(market.scenario)
    order, first = market.under(done.agreement.contracts), done.contracts[0]
    MarketFolder(folder).prepare()
    path = owner_folder(folder / "owners", "0")
    owner = OwnerAgent(OwnerFolder("0", path, one_job=True))
    curator = KeyPair.obtain(folder / "curator")
    stated = {
        **work_of(market.scenario, len(market.environment)),
        "job": "job",
        "owner": "0",
        "owner_key": owner.public_key,
        "curator_key": curator.public_hex,
        "saving": first.saving,
        "sigma": order.job.sigma[0],
        "payment": to_micro(first.payment),
        "offered_at": "2020-01-01T00:00:00+00:00",
        "expires_at": "2999-01-02T00:00:00+00:00",
    }
    return Parties(curator, owner, stated, order.budgets[0])


def test_an_owner_signs_only_what_it_agreed(images: Path, tmp_path: Path) -> None:
    both = parties(images, tmp_path)
    good = both.draft()
    assert good == both.draft()
    changes: list[dict[str, Any]] = [
        {"sigma": good.sigma - 0.05},
        {"saving": good.saving + 0.05},
        {"payment": good.payment - 1},
        {"payment": good.payment + 1},
        {"owner": "1"},
        {"rounds": 3},
        {"job": "another"},
        {"rho_cap": good.rho_cap * 1.001},
        {"false_alarm": 0.5},
        {"weight_cap": 1.0},
        {"count_cap": None},
        {"protection": "paper"},
        {"owner_key": "0" * 64},
        {"curator_key": "0" * 64},
        {"clip": 100.0},
        {"shards": 1},
        {"settings": {}},
        {"rho_per_round": 1e-9},
        {"epsilon": good.epsilon / 2},
        {"delta": 0.5},
        {"neighbours": "zero_out"},
        {"protects": "nothing"},
        {"whole_owner": not good.whole_owner},
        {"simulated": not good.simulated},
        {"offered_at": "2019-01-01T00:00:00+00:00"},
        {"expires_at": "2998-01-01T00:00:00+00:00"},
        {"nonce": "0" * 32},
    ]
    assert {name for change in changes for name in change} == {*good.to_dict()} - {"version"}
    for change in changes:
        (name,) = change
        with pytest.raises(Declined, match=f"owner 0 agreed to other {name}$"):
            both.sign(changed(good, **change))
    signed = countersign(both.curator, good, both.sign(good))
    signed.verify(both.owner.public_key, both.curator.public_hex)
    receipt = Receipt.of(both.curator, good, "signed", Head(3, "3" * 64), None)
    kept = both.owner.keep(signed, both.curator.public_hex, receipt)
    kept.check(both.curator.public_hex, owner=True)


def test_nobody_signs_a_contract_that_has_expired(images: Path, tmp_path: Path) -> None:
    both = parties(images, tmp_path)
    days = {"offered_at": "2020-01-01T00:00:00+00:00", "expires_at": "2020-01-02T00:00:00+00:00"}
    both = replace(both, stated=both.stated | days)
    late = both.draft()
    with pytest.raises(Declined, match="the contract has expired"):
        both.sign(late)
    signature = both.owner.folder.key.sign("owner", late)
    with pytest.raises(BadInput, match="has passed: start a new job"):
        countersign(both.curator, late, signature)


def test_what_is_not_on_the_ledger_is_in_no_owners_hands(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = events(scenario(images), tmp_path / "late")
    next(stream)
    stream.close()
    manifest = tmp_path / "late" / "market.json"
    days = {"opened_at": "2020-01-01T00:00:00+00:00", "expires_at": "2020-01-02T00:00:00+00:00"}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | days))
    with pytest.raises(BadInput, match="has passed: start a new job"):
        played(scenario(images), tmp_path / "late")

    def append(ledger: Ledger, lines: list[entries.NewEntry]) -> object:
        if any(line.kind == "signed" for line in lines):
            raise LedgerConflict("not that")
        return real(ledger, lines)

    real = Ledger.append
    monkeypatch.setattr(Ledger, "append", append)
    with pytest.raises(LedgerConflict, match="not that"):
        played(scenario(images), tmp_path / "refused")
    for folder in ("late", "refused"):
        assert len(list((tmp_path / folder).glob("owners/*/private.json"))) == OWNERS
        assert not list((tmp_path / folder).glob("owners/*/contract.json"))


def test_forged_and_replayed_signatures(images: Path, tmp_path: Path) -> None:
    both = parties(images, tmp_path)
    curator, owner, good = both.curator, both.owner, both.draft()
    signature = both.sign(good)
    thief = KeyPair.create(tmp_path / "thief")
    forged = thief.sign("owner", changed(good, owner_key=thief.public_hex))
    dearer = changed(good, payment=good.payment + 1)
    for contract, given in (
        (good, forged),
        (good, "0" * 128),
        (good, "no signature"),
        (dearer, signature),  # that of another contract
        (changed(good, job="another"), signature),
    ):
        with pytest.raises(BadSignature, match="is not signed by its owner"):
            countersign(curator, contract, given)
    signed = countersign(curator, good, signature)
    receipt = Receipt.of(curator, good, "signed", Head(3, "3" * 64), None)
    other = changed(good, curator_key=thief.public_hex)
    for broken in (
        SignedContract(good, signature, signature),  # the owner's own, in the curator's place
        SignedContract(other, signature, thief.sign("curator", other)),
        SignedContract(dearer, signature, signed.curator_signature),
    ):
        with pytest.raises(Declined, match="the curator's signature does not hold"):
            owner.keep(broken, curator.public_hex, receipt)
    assert not (owner.folder.path / "contract.json").exists()
    for of, said in (
        (changed(receipt, paid=5), "the curator's signature does not hold"),
        (Receipt.of(thief, good, "signed", receipt.noted), "the curator's signature does not hold"),
        (Receipt.of(curator, good, "settled", receipt.noted, 5), "is not of this contract"),
        (Receipt.of(curator, dearer, "signed", receipt.noted, None), "is not of this contract"),
    ):
        with pytest.raises(Declined, match=said):
            owner.keep(signed, curator.public_hex, of)
    assert owner.folder.receipts(good.job) == []


def test_a_changed_scenario_signs_nothing_new(images: Path, tmp_path: Path) -> None:
    stream = events(scenario(images), tmp_path)
    for event in stream:
        if isinstance(event, Signed):
            break
    stream.close()
    with open_ledger(tmp_path) as ledger:
        head = ledger.head()
    for change in ({"false_alarm": 0.5}, {"rounds": ROUNDS + 1}, {"clip": 2.0}):
        with pytest.raises(BadInput, match="has signed another contract in this job"):
            played(scenario(images, **change), tmp_path)
    with pytest.raises(LedgerConflict):
        played(scenario(images, budget=1000), tmp_path)
    with open_ledger(tmp_path) as ledger:
        assert ledger.head() == head
    played(scenario(images), tmp_path)


def test_no_contract_without_noise_under_a_cap(images: Path) -> None:
    market = prepare(scenario(images, rounds=2, rho_cap=5.0))
    last = market.environment.levels.saving_levels
    with pytest.raises(BadInput, match=r"privacy cap .* would add no noise"):
        market.under(Contracts(np.array([last, 0, 0, 0]), np.zeros(4, int), np.ones(4, bool)))
