"""An owner's agent: what it signs and declines, quotes that come twice, what it must be told."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from tests.flower.conftest import Node, ProcessGrid
from tests.flower.market_common import grid_of, make_scenario
from tests.ledger.common import changed

from noisemarket.errors import BadInput
from noisemarket.files import load_arrays, save_arrays
from noisemarket.flower.curator_app import hold_market
from noisemarket.flower.flower_channel import Bounds
from noisemarket.flower.records import content, plain_of
from noisemarket.game.levels import Levels
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import Head
from noisemarket.ledger.keys import CURATOR, KeyPair, SignedContract, holds
from noisemarket.ledger.receipts import Receipt, load_receipt
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import Declined, OwnerFolder
from noisemarket.owner.invitations import GameInvitation, GameRecord, JobInvitation
from noisemarket.owner.owner_messages import (
    ContractOffer,
    ContractSigned,
    Countersigned,
    JobSettled,
    Proposals,
    Question,
    Quotes,
    Signature,
)
from noisemarket.owner.terms import Plan
from noisemarket.owner.wallet import HELD
from noisemarket.pricing.messages import QuoteBatch
from noisemarket.privacy.zcdp import gaussian_epsilon
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.process


class Cut(Exception):
    """Here the test takes over from the curator."""


@dataclass(frozen=True)
class Offered:
    """A market that has been played and stopped at its offers, none of them delivered."""

    node: Node
    folder: Path
    contract: Contract
    plan: Plan
    messages: list[Message]
    curator: KeyPair

    def send(self, kind: str, content: RecordDict) -> Message:
        return self.node.answer(Message(content, 100, kind), 100)

    def say(self, question: Question) -> Message:
        return self.send(question.kind, content(question.plain()))

    def offer(self, contract: Contract, plan: Plan | None = None) -> Message:
        return self.say(ContractOffer(contract, plan or self.plan))

    def receipt(self, stage: str = "signed", paid: int | None = None) -> Receipt:
        return Receipt.of(self.curator, self.contract, stage, Head(7, "7" * 64), paid)

    def signature(self) -> str:
        return Signature.read(*plain_of(self.offer(self.contract).content)).signature


def stop_at_offers(scenario: Scenario, folder: Path) -> Offered:
    grid: ProcessGrid = grid_of(scenario, folder)
    push, played = grid.push_messages, list[Message]()

    def cut(messages: Any) -> Any:
        made = list(messages)
        if made[0].metadata.message_type == ContractOffer.kind:
            raise Cut(made[0])
        played.extend(m for m in made if m.metadata.dst_node_id == 100 and "arrays" in m.content)
        return push(made)

    grid.push_messages = cut  # type: ignore[method-assign]
    with pytest.raises(Cut) as caught:
        hold_market(grid, scenario, folder, lambda line: None, Bounds(30, wait=0.2))
    asked = ContractOffer.read(*plain_of(caught.value.args[0].content))
    contract, plan = asked.contract, asked.plan
    assert contract.owner == "0"
    key = KeyPair.load(folder / "curator")
    return Offered(grid.nodes[100], folder, contract, plan, played, key)


@pytest.fixture
def offered(tmp_path: Path) -> Offered:
    return stop_at_offers(make_scenario(tmp_path / "run"), tmp_path / "run")


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Offered:
    """The same, for all tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("standing") / "run"
    return stop_at_offers(make_scenario(folder), folder)


def test_an_offer_as_agreed_is_signed_once_and_for_all(offered: Offered) -> None:
    signature = offered.signature()
    assert holds("owner", offered.contract, signature)
    assert offered.signature() == signature
    other = offered.offer(offered.contract, {**offered.plan, "seed": 8})
    assert other.error.reason == "another contract was signed in this job"


def no_trade(contract: Contract) -> Contract:
    """What the owner signs where the curator's budget does not reach to the trade."""
    sigma = contract.sigma + contract.saving
    rho = contract.rho_per_round * (contract.sigma / sigma) ** 2
    return changed(
        contract, saving=0.0, sigma=sigma, payment=0, rho_per_round=rho,
        rho_cap=rho * contract.rounds,
        epsilon=gaussian_epsilon(rho * contract.rounds, contract.delta),
    )  # fmt: skip


@pytest.mark.parametrize("made", [lambda contract: contract, no_trade], ids=["trade", "no trade"])
def test_nothing_below_the_owners_own_noise_is_signed_paid_or_unpaid(
    offered: Offered, made: Callable[[Contract], Contract]
) -> None:
    """Also where the owner raises its limits after it has agreed."""
    path = Path(str(offered.node.config["owner-folder"])) / "private.json"
    known, contract = json.loads(path.read_text()), made(offered.contract)
    unpaid = contract.sigma + contract.saving
    for limit, noise, word in (
        ("floor", contract.sigma, "floor"), ("sigma_max", unpaid, "keeps more noise"),
    ):  # fmt: skip
        path.write_text(json.dumps(known | {limit: noise + 0.01}))
        assert word in str(offered.offer(contract).error.reason)
    path.write_text(json.dumps(known))
    assert not offered.offer(contract).has_error()


@pytest.mark.parametrize(
    ("limit", "most"), [("most_rounds", 1), ("most_steps", 0), ("most_weights", 100)]
)
def test_an_owner_signs_no_more_work_than_it_allows(
    offered: Offered, limit: str, most: int
) -> None:
    offered.node.config[limit.replace("_", "-")] = most
    assert f"more {limit[5:]} than" in str(offered.offer(offered.contract).error.reason)
    del offered.node.config[limit.replace("_", "-")]
    assert not offered.offer(offered.contract).has_error()


def test_a_model_that_is_too_large_is_never_made(standing: Offered, tmp_path: Path) -> None:
    """Of a network as of a linear model: it would take eighty gigabytes. Nor is it played for."""
    for model in (
        {"channels": [16, 32], "hidden": 40_000_000, "side": 28},
        {"kind": "linear", "classes": 10**4, "dimension": 10**6},
    ):
        reply = standing.offer(standing.contract, {**standing.plan, "model": model})
        assert "more weights than" in str(reply.error.reason)
    agent, invitation, sheet = agent_and_quotes(
        standing, tmp_path, **{"allow-simulated": True, "rho-cap": 1.0, "most-weights": 100}
    )
    with pytest.raises(Declined, match="more weights than"):
        agent.answer(invitation, sheet)


def test_jobs_without_a_contract_are_answered_a_few_times_a_month(
    standing: Offered, tmp_path: Path
) -> None:
    """Else throw-away jobs would read the owner's cost, answer by answer."""
    path = tmp_path / "owner"
    shutil.copytree(str(standing.node.config["owner-folder"]), path)
    agent = OwnerAgent(OwnerFolder("0", path), {**standing.node.config, "owner-folder": str(path)})
    (known,) = (path / "jobs").iterdir()
    levels = standing_levels(known)
    work = {"simulated": True}
    names = [f"job-{number}" for number in range(6)]
    made = [JobInvitation(name, standing.contract.curator_key, work, levels) for name in names]
    for one in made[:4]:  # and the one that is known, which nobody has signed
        agent.invited(one)
    for one in made[4:]:
        with pytest.raises(Declined, match="ended without a contract"):
            agent.invited(one)
    assert agent.invited(made[0]) == agent.public_key  # what was begun goes on
    long_ago = time.time() - 31 * 86_400
    os.utime(known, (long_ago, long_ago))
    agent.invited(made[4])


def test_a_job_counts_as_one_without_a_contract_until_it_trains(offered: Offered) -> None:
    """Else a curator would sign, never train, or settle for nothing, and ask again in the next."""
    owner = OwnerFolder("0", Path(str(offered.node.config["owner-folder"])))
    signature = offered.signature()
    assert owner.left_unsigned() == 1  # the curator has not signed
    both = SignedContract(
        offered.contract, signature, offered.curator.sign(CURATOR, offered.contract)
    )
    offered.say(ContractSigned(both, offered.receipt()))
    assert owner.left_unsigned() == 1
    assert not offered.say(JobSettled(offered.receipt("settled", 0))).has_error()
    assert owner.left_unsigned() == 1


def test_an_owner_is_told_that_its_records_have_changed(
    offered: Offered, caplog: pytest.LogCaptureFixture
) -> None:
    """Another account with the whole budget begins: also where nobody looks at the accounts."""
    (Path(str(offered.node.config["owner-folder"])) / "wallet-earlier.jsonl").touch()
    for _ in range(2):
        offered.signature()
    assert caplog.text.count("The records of owner 0 have changed: another account begins") == 1


def test_no_message_but_an_invitation_begins_a_job(offered: Offered) -> None:
    """Else made-up jobs would use up what the owner answers, or get around its limit."""
    made_up = changed(offered.contract, job="made-up")
    other = replace(offered, contract=made_up)
    both = SignedContract(made_up, "0" * 128, "0" * 128)
    for question in (
        ContractOffer(made_up, offered.plan), ContractSigned(both, other.receipt()),
        JobSettled(other.receipt("settled", 0)),
    ):  # fmt: skip
        assert "nothing was negotiated" in str(offered.say(question).error.reason)
    owner = OwnerFolder("0", Path(str(offered.node.config["owner-folder"])))
    assert owner.is_new("made-up")


def test_times_that_a_curator_names_do_not_bind_the_owner(offered: Offered) -> None:
    """An unsigned contract keeps the budget for a month at most, and none begins in the future."""
    owner = OwnerFolder("0", Path(str(offered.node.config["owner-folder"])))
    now = datetime.now(UTC)
    for days, reason in ((2, "later time than now"), (0, "")):
        offer, end = ((now + timedelta(days=n)).isoformat() for n in (days, 3650))
        reply = offered.offer(changed(offered.contract, offered_at=offer, expires_at=end))
        assert reply.has_error() == bool(reason)
        assert not reason or reason in str(reply.error.reason)
    (one,) = owner.wallet().account().open.values()
    assert datetime.fromisoformat(one.until) < now + HELD + timedelta(minutes=1)


def standing_levels(job: Path) -> Levels:
    return GameRecord.read(job / "play.npz").invitation.levels


FORGED: dict[str, tuple[Callable[[Contract], Contract], str]] = {
    "less noise": (lambda c: changed(c, sigma=c.sigma / 2), "other sigma"),
    "more saving": (lambda c: changed(c, saving=c.saving * 2), "other saving"),
    "less money": (lambda c: changed(c, payment=c.payment - 1), "other payment"),
    "more rounds": (lambda c: changed(c, rounds=c.rounds + 1), "other rounds"),
    "another clip": (lambda c: changed(c, clip=9.0), "other rho_per_round, clip"),
    "no false alarm": (lambda c: changed(c, false_alarm=0.5), "other false_alarm"),
    "simulated": (lambda c: changed(c, simulated=not c.simulated), "other simulated"),
    "a higher cap": (lambda c: changed(c, rho_cap=c.rho_cap * 2), "other rho_cap"),
    "another cost": (lambda c: changed(c, rho_per_round=c.rho_per_round / 2), "other rho_per"),
    "another owner": (lambda c: changed(c, owner="1"), "other owner"),
    "another key": (lambda c: changed(c, owner_key="0" * 64), "other owner_key"),
    "another curator": (lambda c: changed(c, curator_key="0" * 64), "other curator_key"),
    "another nonce": (lambda c: changed(c, nonce="0" * 32), "other nonce"),
    "another epsilon": (lambda c: changed(c, epsilon=c.epsilon / 2), "other epsilon"),
    "other words": (lambda c: changed(c, protects="everything"), "other protects"),
    "another unit": (lambda c: changed(c, whole_owner=True), "other whole_owner"),
    "more settings": (lambda c: changed(c, settings={**c.settings, "rate": 9.0}), "other settings"),
    "another job": (lambda c: changed(c, job="f" * 32), "nothing was negotiated"),
    "expired": (
        lambda c: changed(c, offered_at="2020-01-01T00:00:00+00:00",
                          expires_at="2020-01-02T00:00:00+00:00"),
        "expired",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_or_replayed_offer_is_refused_and_leaves_nothing(
    standing: Offered, name: str
) -> None:
    change, reason = FORGED[name]
    reply = standing.offer(change(standing.contract))
    assert reply.has_error()
    assert reason in str(reply.error.reason)
    assert not list(standing.folder.glob("owners/*/jobs/*/offer.json"))


def test_after_all_forged_offers_the_true_one_is_signed(offered: Offered) -> None:
    for change, _ in FORGED.values():
        assert offered.offer(change(offered.contract)).has_error()
    assert not offered.offer(offered.contract).has_error()


def test_an_offer_of_an_earlier_job_is_refused(offered: Offered, tmp_path: Path) -> None:
    """The same owner, with the folder it has, in a second job of the same curator."""
    other = tmp_path / "other"
    scenario = make_scenario(other)
    (other / "owners").symlink_to(offered.folder / "owners")
    (other / "curator").mkdir(mode=0o700)
    key = offered.folder / "curator" / "signing-key.pem"
    (other / "curator" / "signing-key.pem").write_bytes(key.read_bytes())
    (other / "curator" / "signing-key.pem").chmod(0o600)
    second = stop_at_offers(scenario, other)
    assert second.contract.job != offered.contract.job
    assert second.contract.payment == offered.contract.payment
    assert "other nonce" in str(
        second.offer(changed(offered.contract, job=second.contract.job)).error.reason
    )
    assert not second.offer(second.contract).has_error()


@pytest.mark.parametrize("noise", ["not JSON", b"{}", "{}", '{"contract": {}, "plan": {}}'])
def test_an_offer_that_cannot_be_read_is_refused(standing: Offered, noise: object) -> None:
    reply = standing.send(ContractOffer.kind, content(({"message": noise}, {})))
    assert "cannot be read" in str(reply.error.reason)
    plan = {"index": 0, "seed": 1, "model": {"channels": "x"}}
    reply = standing.offer(standing.contract, plan)
    assert "cannot be done as offered" in str(reply.error.reason)


def test_only_the_curator_closes_a_contract(offered: Offered, tmp_path: Path) -> None:
    signature = offered.signature()

    def keep(contract: Contract, mine: str, theirs: str) -> Message:
        both = SignedContract(contract, mine, theirs)
        return offered.say(ContractSigned(both, offered.receipt()))

    good = offered.curator.sign(CURATOR, offered.contract)
    stranger = KeyPair.create(tmp_path / "stranger")
    forged = changed(offered.contract, curator_key=stranger.public_hex)
    for contract, mine, theirs, reason in (
        (offered.contract, signature, "0" * 128, "curator's signature"),
        (offered.contract, "0" * 128, good, "not the contract that was signed"),
        (forged, signature, stranger.sign(CURATOR, forged), "not the contract that was signed"),
    ):
        assert reason in str(keep(contract, mine, theirs).error.reason)
    assert not list(offered.folder.glob("owners/*/jobs/*/terms.json"))
    assert not keep(offered.contract, signature, good).has_error()
    terms = json.loads(next(iter(offered.folder.glob("owners/*/jobs/*/terms.json"))).read_text())
    assert Contract.from_dict(terms["contract"]) == offered.contract


def test_nothing_is_kept_or_settled_without_a_contract(offered: Offered) -> None:
    good = offered.curator.sign(CURATOR, offered.contract)
    both = SignedContract(offered.contract, "0" * 128, good)
    kept = offered.say(ContractSigned(both, offered.receipt()))
    assert "nothing was signed" in str(kept.error.reason)
    receipt = offered.receipt("settled", 1)
    settled = offered.say(JobSettled(receipt))
    assert "no contract" in str(settled.error.reason)
    for change, reason in (
        ({"paid": "x"}, "cannot be read"),
        ({"paid": True}, "cannot be read"),
        ({"head": 1}, "cannot be read"),
        ({"head": "1:x"}, "cannot be read"),
        ({"job": 1}, "cannot be read"),
        ({"curator_signature": None}, "cannot be read"),
        ({"stage": "other"}, "cannot be read"),
        ({"owner": "x" * 20_000}, "cannot be read"),
        ({"job": "../x"}, "no such job"),
    ):
        text = json.dumps({"receipt": receipt.to_dict() | change})
        reply = offered.send(JobSettled.kind, content(({"message": text}, {})))
        assert reason in str(reply.error.reason), change
    for text in (b"", 1, "", "[]", "[" * 50_000):
        reply = offered.send(JobSettled.kind, content(({"message": text}, {})))
        assert "cannot be read" in str(reply.error.reason)


def test_only_the_curator_settles_and_only_once(offered: Offered, tmp_path: Path) -> None:
    contract = offered.contract
    good = offered.curator.sign(CURATOR, contract)
    both = SignedContract(contract, offered.signature(), good)
    assert not offered.say(ContractSigned(both, offered.receipt())).has_error()

    def settled(paid: int | None, key: KeyPair, about: Contract = contract) -> str:
        receipt = Receipt.of(key, about, "settled", Head(9, "9" * 64), paid)
        reply = offered.say(JobSettled(receipt))
        return str(reply.error.reason) if reply.has_error() else ""

    place = next(iter(offered.folder.glob("owners/*/jobs/*/contract.json"))).parent
    stranger = KeyPair.create(tmp_path / "stranger")
    assert "signature does not hold" in settled(5, stranger)
    other = changed(contract, owner="1")
    assert "not of this contract" in settled(5, offered.curator, other)
    assert not (place / "statement.json").exists()
    assert settled(5, offered.curator) == ""
    assert settled(5, offered.curator) == ""
    assert "settled otherwise" in settled(4, offered.curator)
    assert "settled otherwise" in settled(None, offered.curator)
    statement = json.loads((place / "statement.json").read_text())
    assert (statement["owner"], statement["paid_micro"]) == (contract.owner, 5)
    receipt = load_receipt(place / "settlement-receipt.json")
    receipt.check(offered.curator.public_hex, owner=True)
    assert (receipt.paid, receipt.stage) == (5, "settled")
    assert load_receipt(place / "signing-receipt.json").stage == "signed"


def test_an_owner_shows_its_receipt_to_a_curator_whose_ledger_was_put_back(
    offered: Offered,
) -> None:
    """It signs nothing that takes back what it has, and the curator gets its own word again."""
    contract, good = offered.contract, offered.curator.sign(CURATOR, offered.contract)
    both = SignedContract(contract, offered.signature(), good)

    def answer(head: Head) -> Receipt:
        receipt = Receipt.of(offered.curator, contract, "signed", head)
        reply = offered.say(ContractSigned(both, receipt))
        return Countersigned.read(*plain_of(reply.content)).receipt

    late = Head(12, "a" * 64)
    for head in (Head(9, "9" * 64), late, late):
        found = answer(head)
        assert found.noted == head
        found.check(offered.curator.public_hex, owner=True)
    for older in (Head(9, "9" * 64), Head(12, "b" * 64), Head(1, "c" * 64)):
        found = answer(older)
        assert found.noted == late
        found.check(offered.curator.public_hex, owner=True)


def test_a_message_that_comes_again_gets_the_reply_that_it_got(offered: Offered) -> None:
    assert len(offered.messages) == 8
    place = next(iter(offered.folder.glob("owners/owner-0/jobs/*/play.npz")))
    before = place.read_bytes()
    replies = [offered.node.answer(message, 100) for message in offered.messages]
    again = [offered.node.answer(message, 100) for message in offered.messages]
    for one, other in zip(replies, again, strict=True):
        first, second = (Proposals.read(*plain_of(reply.content)).batch for reply in (one, other))
        assert np.array_equal(first.proposals, second.proposals)
        assert np.array_equal(first.signed, second.signed)
    assert place.read_bytes() == before


@pytest.mark.parametrize("name", ["proposals", "state.moves"])
def test_a_game_of_another_version_is_declined_in_words(offered: Offered, name: str) -> None:
    place = next(iter(offered.folder.glob("owners/owner-0/jobs/*/play.npz")))
    kept = load_arrays(place)
    kept[f"{name}-then"] = kept.pop(name)
    save_arrays(place, private=True, **kept)
    words = "what was kept of this job is of another version"
    assert offered.offer(offered.contract).error.reason == words


def test_another_message_in_its_place_is_refused(offered: Offered) -> None:
    """Else a curator could ask an owner's player what it would have done."""
    asked = Quotes.read(*plain_of(offered.messages[3].content))
    invitation, sheet = asked.invitation, asked.batch
    turned = QuoteBatch(sheet.first, (sheet.quotes + 1) % 7, sheet.signs)
    reply = offered.say(Quotes(invitation, turned))
    assert "other quotes" in str(reply.error.reason)
    more = QuoteBatch(400, sheet.quotes, sheet.signs)
    reply = offered.say(Quotes(invitation, more))
    assert "more than was agreed" in str(reply.error.reason)
    other = replace(invitation, key=invitation.key + 1)
    reply = offered.say(Quotes(other, sheet))
    assert "another one" in str(reply.error.reason)


def agent_and_quotes(
    standing: Offered, tmp_path: Path, **config: Any
) -> tuple[OwnerAgent, GameInvitation, QuoteBatch]:
    """A new owner's agent, and the first quotes to it."""
    folder = tmp_path / "owner"
    folder.mkdir(mode=0o700)
    asked = Quotes.read(*plain_of(standing.messages[0].content))
    invitation, sheet = asked.invitation, asked.batch
    own = OwnerFolder("0", folder)
    own.keep_private(NUMBERS)
    own.keep_records(np.zeros((20, 4), np.float32), np.zeros(20, np.int64))
    return OwnerAgent(own, config), invitation, sheet


NUMBERS = {"privacy_cost": 0.5, "markup": 0.1, "payment_value": 0.08, "privacy_weight": 2.5}


def test_limits_may_be_in_the_nodes_own_config(standing: Offered, tmp_path: Path) -> None:
    config = {"rho-cap": 1.0, "allow-simulated": True}
    agent, invitation, sheet = agent_and_quotes(standing, tmp_path, **config)
    reply = agent.answer(invitation, sheet)
    assert len(reply) == 50
    again = OwnerAgent(agent.folder, config).answer(invitation, sheet)
    assert np.array_equal(again.proposals, reply.proposals)  # whatever seed a new player would draw


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "noise from a seed hides nothing"),
        ({"allow-simulated": True, "curator-key": "0" * 64}, "not the curator's key"),
        ({"allow-simulated": True}, "named no rho-cap"),
        ({"allow-simulated": True, "rho-cap": float("inf")}, "named no rho-cap"),
        ({"allow-simulated": True, "allow-unbounded": "yes"}, "named no rho-cap"),
    ],
)
def test_an_owner_plays_only_what_it_was_set_up_for(
    standing: Offered, tmp_path: Path, config: dict[str, Any], reason: str
) -> None:
    agent, invitation, sheet = agent_and_quotes(standing, tmp_path, **config)
    with pytest.raises(Declined, match=reason):
        agent.answer(invitation, sheet)


@pytest.mark.parametrize("cap", [-1.0, float("nan"), "much"])
def test_a_cap_that_is_no_number_is_none(standing: Offered, tmp_path: Path, cap: object) -> None:
    config = {"allow-simulated": True, "allow-unbounded": True, "rho-cap": cap}
    agent, invitation, sheet = agent_and_quotes(standing, tmp_path, **config)
    with pytest.raises(BadInput, match="not negative"):
        agent.answer(invitation, sheet)


def test_a_cap_of_the_owners_own_is_kept(offered: Offered) -> None:
    offered.node.config["rho-cap"] = offered.contract.rho_cap / 2
    assert "more privacy than the owner sells" in str(offered.offer(offered.contract).error.reason)


def test_a_loss_without_bound_is_signed_only_where_the_owner_says_so(tmp_path: Path) -> None:
    """The paper's protection bounds nothing, so that a round costs more than any number."""
    scenario = make_scenario(tmp_path / "run", protection="paper")
    offered = stop_at_offers(scenario, tmp_path / "run")
    config = offered.node.config
    assert config.pop("allow-unbounded") is True  # of the scenario
    assert "named no rho-cap" in str(offered.offer(offered.contract).error.reason)
    config["rho-cap"] = 1e300
    assert "more privacy than the owner sells" in str(offered.offer(offered.contract).error.reason)
    del config["rho-cap"]
    config["allow-unbounded"] = True
    assert offered.contract.rho_per_round == np.inf
    assert holds("owner", offered.contract, offered.signature())


def test_owners_of_a_scenario_with_a_cap_cap_what_it_caps(tmp_path: Path) -> None:
    scenario = make_scenario(tmp_path / "run", rho_cap=1e6)
    config = grid_of(scenario, tmp_path / "run").nodes[100].config
    assert config["rho-cap"] == 1e6
    assert "allow-unbounded" not in config


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"job": 1}', "null"],
)
def test_an_invitation_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(Declined, match="cannot be read"):
        GameInvitation.from_json(text)


def test_an_invitation_is_checked_part_by_part(offered: Offered) -> None:
    asked = Quotes.read(*plain_of(offered.messages[0].content))
    invitation, _ = asked.invitation, asked.batch
    good = json.loads(invitation.to_json())
    assert GameInvitation.from_json(json.dumps(good)) == invitation
    table = good["table"]
    for bad in (
        good | {"key": -1},
        good | {"key": 2**64},
        good | {"curator_key": "z" * 64},
        good | {"work": []},
        good | {"more": 1},
        good | {"table": table | {"rule": "unknown"}},
        good | {"table": table | {"iterations": 0}},
        good | {"table": table | {"starts": [*range(2000)]}},  # tables for each
        good | {"table": table | {"levels": table["levels"] | {"saving_levels": 10**9}}},
        good | {"table": table | {"protocol": "other"}},
        good | {"table": table | {"settings": table["settings"] | {"discount": "x"}}},
    ):
        with pytest.raises(Declined, match="cannot be read"):
            GameInvitation.from_json(json.dumps(bad))
