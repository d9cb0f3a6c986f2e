"""A mechanism's questions to owners, each a message over the channel, and every answer kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import digest, load_arrays, save_arrays
from noisemarket.game.environment import Environment
from noisemarket.game.levels import BoolArray, IntArray
from noisemarket.market.owners import Answer, Owners
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
    MenuQuestion,
    PriceQuestion,
    Proposals,
    Question,
    Quotes,
    Stay,
)
from noisemarket.pricing.asker import Asker
from noisemarket.pricing.mechanism import RunOptions
from noisemarket.pricing.messages import GameRules, ProposalBatch, QuoteBatch

ANSWERS = "answers"
"""The folder of the answers: a file for each time that the mechanism asks."""


class ChannelAsker(Asker):
    """Puts a mechanism's questions to the owners, each by a message.

    Every answer is kept in the curator's folder. So a market that was killed asks for none twice:
    the mechanism is run again, and gets the answers that it got. An owner that cannot be reached,
    or whose answers cannot be used, has left the negotiation and the job.
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
        items = tuple(savings.tolist()), tuple(payments.tolist())
        to = self._invitation
        menu = MenuInvitation(to.job, to.curator_key, to.work, to.levels, *items)
        question = MenuQuestion(menu)
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

        def moves(reply: Proposals) -> Any:
            return np.stack([reply.batch.proposals, reply.batch.signed.astype(np.int64)])

        found = self._answers(questions, Proposals, moves, _fitting(rules, quotes))
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


def _fitting(rules: GameRules, quotes: Mapping[int, QuoteBatch]) -> Callable[[Proposals], bool]:
    """Whether proposals fit a game, as far as their number and levels go."""
    sizes = {(one.first, len(one)) for one in quotes.values()}
    savings = rules.levels.shape[0]

    def fit(reply: Proposals) -> bool:
        batch = reply.batch
        return (batch.first, len(batch)) in sizes and int(batch.proposals.max()) < savings

    return fit


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
