"""The curator's dealings with the owners of a job, over whatever channel.

An owner that cannot be reached, declines or gives unusable answers before it has signed is left
out: the job goes on without it. ``ChannelAsker`` puts a mechanism's questions to them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from noisemarket.errors import BadInput, BadSignature, NoisemarketError
from noisemarket.files import digest, load_arrays, save_arrays, write_json
from noisemarket.game.environment import Environment
from noisemarket.game.levels import BoolArray, IntArray
from noisemarket.ledger.contract import Contract, is_key
from noisemarket.ledger.keys import OWNER, SignedContract, holds
from noisemarket.ledger.receipts import Receipt, UploadReceipt
from noisemarket.market.channel import Channel
from noisemarket.market.orders import Order
from noisemarket.owner.invitations import (
    GameInvitation,
    JobInvitation,
    MenuInvitation,
    SaleInvitation,
)
from noisemarket.owner.owner_messages import (
    PROTOCOL,
    BidQuestion,
    Chosen,
    ContractOffer,
    ContractSigned,
    Countersigned,
    JobSettled,
    KeyQuestion,
    MenuQuestion,
    PriceQuestion,
    Proposals,
    PublicKey,
    Question,
    Quotes,
    Refused,
    Reply,
    Signature,
    Stay,
)
from noisemarket.pricing.asker import Asker
from noisemarket.pricing.mechanism import RunOptions
from noisemarket.pricing.messages import GameRules, ProposalBatch, QuoteBatch

LEFT_OUT, KEYS = "left-out.json", "keys.json"
TRIES = 3
"""Answers that cannot be used, from one owner to one question."""

_PAUSE = 0.5
_SETTLED_SECONDS = 60.0

Answer = TypeVar("Answer", bound=Reply)


class Owners:
    """The owners of a job. ``folder`` is the curator's, for keys and left-out owners."""

    def __init__(self, channel: Channel, names: Sequence[str], folder: Path) -> None:
        self.channel, self.names, self._folder = channel, list(names), folder
        self.left_out: dict[str, str] = {}
        """Owners that are left out, and why."""
        if (file := folder / LEFT_OUT).exists():
            self.left_out = dict(json.loads(file.read_text(encoding="utf-8")))

    def taking_part(self) -> list[int]:
        """Those that were not left out."""
        return [at for at, name in enumerate(self.names) if name not in self.left_out]

    def ask(
        self,
        questions: Mapping[int, Question],
        kind: type[Answer],
        good: Callable[[int, Answer], bool] = lambda index, reply: True,
        *,
        leave_out: bool = True,
    ) -> dict[int, Answer]:
        """Ask owners until each has given an answer that can be used; gives these.

        One that is away is asked again when it is back, for ``patience`` seconds after the others;
        one whose answers cannot be used, three times. The others are left out of the job.
        """
        left, found = dict(questions), dict[int, Answer]()
        tries, why, end = dict.fromkeys(left, 0), dict.fromkeys(left, "away"), math.inf
        while waiting := [index for index in left if tries[index] < TRIES]:
            here = self.channel.present()
            asked = {i: left[i] for i in waiting if here is None or i in here}
            for index, reply in self.channel.ask(asked).items():
                if isinstance(reply, kind) and good(index, reply):
                    found[index] = reply
                    del left[index]
                else:
                    tries[index] += 1
                    refused = isinstance(reply, Refused)
                    why[index] = reply.reason if refused else "unusable answers"  # type: ignore[attr-defined]
            end = min(end, time.monotonic() + self.channel.patience)
            if not left or time.monotonic() >= end:
                break
            time.sleep(_PAUSE)
        if leave_out and left:
            about = next(iter(left.values())).kind.removeprefix("query.")
            self.left_out |= {self.names[index]: f"{about}: {why[index]}" for index in left}
            write_json(self._folder / LEFT_OUT, self.left_out)
        return dict(sorted(found.items()))

    def keys(self, invitation: JobInvitation) -> dict[str, str]:
        """The owners' public keys, by name."""
        file = self._folder / KEYS
        if file.exists():  # the ledger has them: they cannot change
            return dict(json.loads(file.read_text(encoding="utf-8")))
        asked = dict.fromkeys(self.taking_part(), KeyQuestion(invitation))
        found = self.ask(asked, PublicKey, lambda _, reply: is_key(reply.key))
        keys = {self.names[index]: reply.key for index, reply in found.items()}
        if self.channel.lasting:
            write_json(file, keys)
        return keys

    def sign(self, contracts: Mapping[int, Contract], order: Order) -> dict[int, str]:
        """The signatures of the owners that accept."""
        plan = {"seed": order.job.seed, "model": order.job.model.settings()}
        if order.job.data.description:
            plan["description"] = order.job.data.description.text
        asked = {
            index: ContractOffer(contract, {"index": index, **plan})
            for index, contract in contracts.items()
        }
        found = self.ask(
            asked, Signature, lambda index, reply: holds(OWNER, contracts[index], reply.signature)
        )
        return {index: reply.signature for index, reply in found.items()}

    def keep(
        self, signed: Mapping[int, SignedContract], receipts: Mapping[int, Receipt]
    ) -> dict[int, Receipt]:
        """Give owners their contracts with both signatures, and receipts of them.

        The replies are receipts that the owners signed: these, or one of a later state of the
        ledger.
        """
        asked = {index: ContractSigned(one, receipts[index]) for index, one in signed.items()}
        found = self.ask(
            asked, Countersigned, lambda i, reply: _answers(reply, receipts[i]), leave_out=False
        )
        return {index: reply.receipt for index, reply in found.items()}

    def present(self, owners: Collection[int]) -> Collection[int]:
        """Those of these owners that can be asked now; waits until there is one."""
        end = time.monotonic() + self.channel.patience
        while True:
            here = self.channel.present()
            if here is None:
                return owners
            if wanted := sorted(set(owners) & set(here)):
                return wanted
            if time.monotonic() > end:
                raise NoisemarketError("No owner is here: run again later.")
            time.sleep(_PAUSE)

    def settled(
        self, receipts: Mapping[int, Receipt], uploads: Mapping[int, UploadReceipt]
    ) -> dict[int, Receipt]:
        """Give the owners receipts of what they are paid, and of their last uploads; returns as
        ``keep``."""
        asked = {index: JobSettled(one, uploads.get(index)) for index, one in receipts.items()}
        self.channel.present()
        replies = self.channel.ask(asked, timeout=_SETTLED_SECONDS)
        self.channel.settled()
        return {
            index: reply.receipt
            for index, reply in replies.items()
            if isinstance(reply, Countersigned) and _answers(reply, receipts[index])
        }


def _answers(reply: Countersigned, issued: Receipt) -> bool:
    """Whether a receipt is this one with the owner's signature, or one that it had before."""
    found = reply.receipt
    if (found.contract, found.owner_key) != (issued.contract, issued.owner_key):
        return False
    try:
        found.check(issued.curator_key, owner=True)
    except BadSignature:
        return False
    return True


ANSWERS = "answers"
"""The folder of the answers: a file for each time that the mechanism asks."""


class ChannelAsker(Asker):
    """Puts a mechanism's questions to the owners, each by a message.

    Every answer is kept: a market that was killed runs its mechanism again on the same answers.
    """

    def __init__(
        self,
        owners: Owners,
        invitation: JobInvitation,
        environment: Environment,
        options: RunOptions,
        folder: Path,
    ) -> None:
        self._owners, self._invitation = owners, invitation
        self._keys = environment.population.key
        self._name = _negotiation(environment, options, owners.names)
        self._folder, self._asked = folder / ANSWERS, 0

    def stay(self, saving: int, owners: IntArray, payments: IntArray) -> BoolArray:
        invitation = SaleInvitation(**vars(self._invitation), saving=saving)
        prices = {p: PriceQuestion(invitation, p) for p in set(payments.tolist()) if p > 0}
        asked = dict(zip(owners.tolist(), payments.tolist(), strict=True))
        questions = {index: prices[price] for index, price in asked.items() if price > 0}
        found = self._answers(questions, Stay, lambda reply: [int(reply.stay)])
        return np.array([bool(found.get(i, [0])[0]) for i in asked], dtype=bool)

    def bid(self, saving: int) -> IntArray:
        question = BidQuestion(SaleInvitation(**vars(self._invitation), saving=saving))
        nobody = self._invitation.levels.payment_levels + 1
        found = self._answers(
            dict.fromkeys(range(len(self._keys)), question), Chosen, lambda reply: [reply.number],
            lambda reply: 1 <= reply.number <= nobody,
        )  # fmt: skip
        return np.array([int(found.get(i, [nobody])[0]) for i in range(len(self._keys))])

    def choose(self, savings: IntArray, payments: IntArray) -> IntArray:
        items = tuple(zip(savings.tolist(), payments.tolist(), strict=True))
        question = MenuQuestion(MenuInvitation(**vars(self._invitation), items=items))
        found = self._answers(
            dict.fromkeys(range(len(self._keys)), question), Chosen, lambda reply: [reply.number],
            lambda reply: reply.number < len(savings),
        )  # fmt: skip
        return np.array([int(found.get(i, [-1])[0]) for i in range(len(self._keys))])

    def play(
        self, rules: GameRules, quotes: Mapping[int, QuoteBatch]
    ) -> Mapping[int, ProposalBatch]:
        to = self._invitation
        questions = {
            index: Quotes(
                GameInvitation(to.job, to.curator_key, to.work, int(self._keys[index]), rules),
                batch,
            )
            for index, batch in quotes.items()
        }

        sizes = {(one.first, len(one)) for one in quotes.values()}
        savings = rules.levels.shape[0]

        def moves(reply: Proposals) -> Any:
            return np.stack([reply.batch.proposals, reply.batch.signed.astype(np.int64)])

        def fit(reply: Proposals) -> bool:
            batch = reply.batch
            return (batch.first, len(batch)) in sizes and int(batch.proposals.max()) < savings

        found = self._answers(questions, Proposals, moves, fit)
        return {
            index: ProposalBatch(quotes[index].first, one[0], one[1].astype(bool))
            for index, one in found.items()
        }

    def _answers(
        self,
        questions: Mapping[int, Question],
        kind: type[Answer],
        value: Callable[[Answer], Any],
        good: Callable[[Answer], bool] = lambda reply: True,
    ) -> dict[int, Any]:
        """The answers as numbers, by owner: those that are kept, or else asked for and kept."""
        self._asked += 1
        file = self._folder / f"{self._asked:06d}.npz"
        here = set(self._owners.taking_part())
        name = digest(self._name, _questions(questions)).hex()
        if not file.exists():
            asked = {index: one for index, one in questions.items() if index in here}
            found = self._owners.ask(asked, kind, lambda _, reply: good(reply))
            if not self._owners.taking_part():
                raise NoisemarketError("No owner has taken part in the negotiation.")
            self._folder.mkdir(mode=0o700, exist_ok=True)
            kept: dict[str, Any] = {str(i): np.asarray(value(one)) for i, one in found.items()}
            save_arrays(file, name=np.array(name), **kept)
        return _read(file, name)


def _negotiation(environment: Environment, options: RunOptions, names: list[str]) -> bytes:
    """All that decides, on the curator's side, how a negotiation goes on after the same answers."""
    population = environment.population
    public = [
        asdict(environment.levels),
        asdict(environment.surface),
        asdict(options.demand),
        asdict(options.play),
    ]
    weights = [
        (phase.start, phase.quality_weight, phase.quality_value, phase.payment_cost)
        for phase in environment.phases
    ]
    text = json.dumps([PROTOCOL, public, weights, names], default=str)
    arrays = population.data_size, population.key, *(phase.beta for phase in environment.phases)
    return digest(text.encode(), *(np.ascontiguousarray(one).tobytes() for one in arrays))


def _questions(questions: Mapping[int, Question]) -> bytes:
    """What tells these questions from any others."""
    parts, seen = [], dict[int, bytes]()
    for index, question in questions.items():
        if id(question) not in seen:
            config, arrays = question.plain()
            text = json.dumps([question.kind, config], sort_keys=True).encode()
            seen[id(question)] = digest(text, *(one.tobytes() for one in arrays.values()))
        parts += [b"%d" % index, seen[id(question)]]
    return digest(*parts)


def _read(file: Path, name: str) -> dict[int, Any]:
    try:
        kept = load_arrays(file)
        same = str(kept.pop("name")) == name
        found = {int(index): array for index, array in kept.items()}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise BadInput("answers", str(file), f"cannot be read ({problem}).") from None
    if not same:
        remedy = "are of another negotiation: restore its scenario, and its version of noisemarket."
        raise BadInput("answers", str(file), remedy)
    return dict(sorted(found.items()))
