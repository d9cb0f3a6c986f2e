"""What every channel must hold: the same questions, answers and contracts, wherever owners are.

A test module gets the whole suite with one class::

    class TestMine(ChannelConformance):
        @pytest.fixture
        def open_channel(self) -> Open:
            return lambda scenario, folder: MyChannel(...)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flower.market_common import make_scenario
from tests.ledger.common import changed

from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.channel import Channel
from noisemarket.market.job import run_market
from noisemarket.market.negotiation import run_options
from noisemarket.market.offers import work_of
from noisemarket.market.orders import prepare
from noisemarket.market.owners import ChannelAsker, Owners
from noisemarket.market.run_folder import MarketFolder
from noisemarket.owner.invitations import JobInvitation, SaleInvitation
from noisemarket.owner.owner_messages import (
    ContractOffer,
    ContractSigned,
    Countersigned,
    JobSettled,
    KeyQuestion,
    PriceQuestion,
    PublicKey,
    Question,
    Refused,
    Reply,
    Signature,
    Stay,
    Train,
    Update,
)
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.mechanism import Contracts
from noisemarket.scenario import Scenario

Open = Callable[[Scenario, Path], Channel]
"""Opens a channel to the owners of a scenario, whose job has this folder."""

ASKING = (
    *("clock", "dypp", "phc", "q_learning", "greedy", "bisection", "pac_auction", "csra_auction"),
    *("posted_price", "pain_fl"),
)
"""All mechanisms that ask owners."""

RUBBISH: list[Reply] = [
    Update(np.full(3, np.nan, np.float32)),
    Update(np.array("text")),  # type: ignore[arg-type]
    Update(np.zeros((0, 7), np.complex64)),  # type: ignore[arg-type]
    PublicKey("0" * 64),
]
"""What a hostile owner answers in each round instead of its update."""

CHANGES = [{"at": 150, "scale": {"privacy_cost": 0.4}}, {"at": 300, "set": {"markup": 0.3}}]
HABITS = {"temperature": 0.4, "answer_rate": 0.8}


@dataclass(frozen=True)
class Negotiated:
    """A negotiation over a channel, before it began."""

    scenario: Scenario
    owners: Owners
    invitation: JobInvitation
    folder: Path

    def contracts(self) -> Contracts:
        """By messages."""
        environment = prepare(self.scenario, secrets=False).environment
        options = run_options(self.scenario, threads=1)
        asker = ChannelAsker(self.owners, self.invitation, environment, options, self.folder)
        mechanism = find_mechanism(self.scenario.mechanism)
        return mechanism.run(environment, replace(options, asker=asker)).contracts

    def in_arrays(self) -> Contracts:
        """By all owners at once, in this process."""
        mechanism = find_mechanism(self.scenario.mechanism)
        options = run_options(self.scenario, threads=1)
        return mechanism.run(self.scenario.environment(), options).contracts


def begin(open_channel: Open, folder: Path, **settings: Any) -> Negotiated:
    scenario = make_scenario(folder, **settings)
    job = MarketFolder(folder)
    job.prepare()
    key = KeyPair.obtain(job.curator).public_hex
    invitation = JobInvitation(
        job.manifest().job,
        key,
        work_of(scenario, scenario.population.owners),
        scenario.environment().levels,
    )
    names = [str(name) for name in scenario.environment().population.names]
    owners = Owners(open_channel(scenario, folder), names, job.curator)
    return Negotiated(scenario, owners, invitation, job.curator)


def same(one: Contracts, other: Contracts) -> bool:
    return np.array_equal(one.saving, other.saving) and np.array_equal(one.payment, other.payment)


def signed(folder: Path) -> dict[str, tuple[float, float, int]]:
    with open_ledger(folder, create=False) as ledger:
        found = [one.contract for one in contracts(ledger)]
    return {one.owner: (one.saving, one.sigma, one.payment) for one in found}


class ChannelConformance:
    """The suite. ``open_channel`` is the channel's own fixture."""

    @pytest.mark.parametrize("mechanism", ASKING)
    def test_messages_and_arrays_end_with_the_same_contracts(
        self, open_channel: Open, tmp_path: Path, mechanism: str
    ) -> None:
        one = begin(open_channel, tmp_path / "run", mechanism=mechanism)
        found = one.contracts()
        assert same(found, one.in_arrays())
        assert found.signed.any() or mechanism == "greedy", "the test shows nothing"
        assert one.owners.left_out == {}

    @pytest.mark.parametrize("mechanism", ["clock", "dypp", "pain_fl"])
    @pytest.mark.parametrize("more", [{"changes": CHANGES}, HABITS])
    def test_changes_and_habits_are_the_owners_own(
        self, open_channel: Open, tmp_path: Path, mechanism: str, more: dict[str, Any]
    ) -> None:
        one = begin(open_channel, tmp_path / "run", mechanism=mechanism, **more)
        assert same(one.contracts(), one.in_arrays())

    @pytest.mark.parametrize("mechanism", ["clock", "dypp", "pac_auction"])
    def test_answers_that_are_kept_are_not_asked_for_again(
        self, open_channel: Open, tmp_path: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = begin(open_channel, tmp_path / "run", mechanism=mechanism)
        found = one.contracts()

        def refuse(*given: object) -> dict[int, Reply]:
            raise AssertionError("asked again")

        monkeypatch.setattr(one.owners.channel, "ask", refuse)
        assert same(one.contracts(), found)

    def test_the_same_question_gets_the_same_reply_and_others_are_declined(
        self, open_channel: Open, tmp_path: Path
    ) -> None:
        one = begin(open_channel, tmp_path / "run", mechanism="clock")
        sale = SaleInvitation(**vars(one.invitation), saving=2)
        channel, everybody = one.owners.channel, range(3)

        def ask(question: Question) -> Mapping[int, Reply]:
            return one.owners.channel.ask(dict.fromkeys(everybody, question))

        channel.present()
        for price in (6, 5, 5, 1, 1):
            replies = ask(PriceQuestion(sale, price))
            assert sorted(replies) == [0, 1, 2]
        assert all(isinstance(reply, Stay) and not reply.stay for reply in replies.values())
        for question in (
            PriceQuestion(sale, 4),  # it has left
            PriceQuestion(sale, 99),
            PriceQuestion(replace(sale, saving=1), 1),
            KeyQuestion(replace(one.invitation, work={**one.invitation.work, "rounds": 7})),
        ):
            assert all(isinstance(reply, Refused) for reply in ask(question).values())
        keys = ask(KeyQuestion(one.invitation))
        assert len({reply.key for reply in keys.values() if isinstance(reply, PublicKey)}) == 3
        assert ask(KeyQuestion(one.invitation)) == keys

    @pytest.mark.parametrize("mechanism", ["uniform", "csra_auction"])
    def test_a_whole_job_signs_what_the_embedded_market_signs(
        self, open_channel: Open, tmp_path: Path, mechanism: str
    ) -> None:
        """Also where nobody is asked: an owner that was invited signs that nothing is traded."""
        for name in ("here", "there"):
            folder = tmp_path / name / "run"
            scenario = make_scenario(folder, mechanism=mechanism, rounds=1)
            channel = open_channel(scenario, folder) if name == "there" else None
            run_market(prepare(scenario), folder, channel=channel, workers=1).finish()
        assert signed(tmp_path / "there" / "run") == signed(tmp_path / "here" / "run")
        assert len(signed(tmp_path / "here" / "run")) == 3

    def test_hostile_owners_harm_nobody_else(
        self, open_channel: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One has no key, one signs something else, one sends rubbish for every upload and receipt;
        the fourth is honest, and is paid as if it were alone."""
        folder = tmp_path / "run"
        scenario = make_scenario(folder, owners=4, mechanism="uniform", rounds=len(RUBBISH))
        channel = open_channel(scenario, folder)
        honest = channel.ask

        def ask(asked: Mapping[int, Question], timeout: float | None = None) -> dict[int, Reply]:
            replies = honest(asked, timeout)
            for index, question in asked.items():
                match index, question:
                    case 0, KeyQuestion():
                        replies[0] = PublicKey("no key")
                    case 1, ContractOffer():
                        replies[1] = Signature("0" * 128)
                    case 2, Train():
                        replies[2] = RUBBISH[question.round_number - 1]
                    case 2, ContractSigned() | JobSettled():
                        replies[2] = Countersigned(question.receipt)  # without its signature
            return replies

        monkeypatch.setattr(channel, "ask", ask)
        outcome = run_market(prepare(scenario), folder, channel=channel, workers=1).finish()
        states = {one.owner: (one.state, one.reason) for one in outcome.owners}
        assert states["0"] == ("left out", "key: unusable answers")
        assert states["1"] == ("left out", "contract: unusable answers")
        assert states["2"] == ("broken", f"malformed uploads in {len(RUBBISH) - 1} rounds")
        assert states["3"][0] == "paid"
        assert all(result.delivered == (3,) for result in outcome.results)
        with open_ledger(folder, create=False) as ledger:
            assert verify(ledger).jobs_settled == 1

    def test_owners_sign_nothing_that_a_hostile_curator_changes(
        self, open_channel: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Less noise than agreed, another curator's key, a false promise; the fourth gets its own
        contract, and is paid."""
        folder = tmp_path / "run"
        scenario = make_scenario(folder, owners=4, mechanism="uniform", rounds=1)
        channel = open_channel(scenario, folder)
        honest = channel.ask
        changes: dict[int, dict[str, Any]] = {
            0: {"sigma": 0.01}, 1: {"curator_key": "0" * 64}, 2: {"epsilon": 1e-3},
        }  # fmt: skip

        def ask(asked: Mapping[int, Question], timeout: float | None = None) -> dict[int, Reply]:
            sent = {
                index: replace(one, contract=changed(one.contract, **changes[index]))
                if isinstance(one, ContractOffer) and index in changes
                else one
                for index, one in asked.items()
            }
            return honest(sent, timeout)

        monkeypatch.setattr(channel, "ask", ask)
        outcome = run_market(prepare(scenario), folder, channel=channel, workers=1).finish()
        for one in outcome.owners[:3]:
            assert one.state == "left out"
            assert "agreed to other " + next(iter(changes[int(one.owner)])) in one.reason
        assert outcome.owners[3].state == "paid"
        assert set(signed(folder)) == {"3"}
