"""Negotiations over Flower: the learned game, and the clock auction.

The curator's players are here, each owner's player is with the owner; in an auction each owner says
whether it stays. Every reply is kept, so a market that was killed asks for none twice: it goes on
from what it has, and an owner that is asked again gives the answer that it gave. An owner that
cannot be reached, or whose answers cannot be used, has left the negotiation and the job.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.files import digest, load_arrays, save_arrays, write_json
from noisemarket.flower import wire
from noisemarket.flower.line import Asking
from noisemarket.game.environment import Environment
from noisemarket.ledger.document import canonical
from noisemarket.market.negotiation import run_options
from noisemarket.owner.record import ClockInvitation, Invitation
from noisemarket.owner.terms import JobTerms
from noisemarket.pricing.bisection import BISECTION
from noisemarket.pricing.clock import ClockAuction
from noisemarket.pricing.mechanism import Agreement, Demand, Progress, Stop, Watch, same_for_all
from noisemarket.pricing.messages import CuratorPlayer, ProposalBatch
from noisemarket.pricing.players import (
    agreement_of,
    bisection_rules,
    curator_against,
    game_rules,
)
from noisemarket.scenario import Scenario

REPLIES, LOTS_KEPT = "replies.npz", "clock.json"
MESSAGES_IN_A_GAME = 8
"""Messages to an owner in a negotiation, where the scenario does not say how many."""


def interactions(scenario: Scenario) -> int:
    """How many interactions go into one message."""
    learning = scenario.learning
    if learning.interactions_per_message > 1:
        return learning.interactions_per_message
    return max(2, math.ceil(learning.iterations / MESSAGES_IN_A_GAME))


class RemoteGame:
    """The game of a scenario with owners over a line. ``rule`` is how both sides learn; ``folder``
    is where the curator keeps replies."""

    def __init__(
        self,
        scenario: Scenario,
        environment: Environment,
        rule: str,
        asking: Asking,
        folder: Path,
    ) -> None:
        config = run_options(scenario).play
        if rule == BISECTION:
            self._rules = bisection_rules(environment, config)
        else:
            self._rules = game_rules(environment, rule, config, interactions(scenario))
        self._keys, self._asking = environment.population.key, asking
        self._players = {
            index: curator_against(index, self._rules, environment, config)
            for index in asking.taking_part()
        }
        game = [wire.PROTOCOL, self._rules.to_dict(), asking.line.names]
        payoffs = environment.curator_side().payoffs()
        name = digest(json.dumps(game, sort_keys=True).encode(), payoffs.tobytes()).hex()
        self._kept = _Replies(folder / REPLIES, name)
        for index, player in self._players.items():
            self._replay(index, player)

    def play(self, terms: JobTerms, curator_key: str, watch: Watch, stop: Stop) -> Agreement:
        """Play the game to its end with all who take part."""
        work, players, owners = terms.public(), self._players, len(self._keys)
        invitations = [
            Invitation(terms.job, curator_key, work, int(key), self._rules) for key in self._keys
        ]
        if self._behind():
            self._asking.line.meet(self._asking.line.bounds.wait)
        while behind := self._behind():
            _refuse_if_stopped(stop)
            for index in self._exchange(behind, invitations):
                del players[index]
            _check_taking_part(self._asking)
            played = [players[index].played for index in behind if index in players]
            share = min(played, default=0) / self._rules.iterations
            tell_progress(watch, int(share * owners), owners)
        deals = dict.fromkeys(range(owners), (0, 0))
        return agreement_of(deals | {p: one.deal() for p, one in players.items()}, owners)

    def _behind(self) -> list[int]:
        """The owners whose negotiation is not over."""
        most = self._rules.iterations
        return [p for p, one in self._players.items() if one.played < most and not one.settled]

    def _next_length(self, player: CuratorPlayer) -> int:
        rules = self._rules
        return min(rules.interactions_per_message, rules.iterations - player.played)

    def _exchange(self, owners: Sequence[int], invitations: Sequence[Invitation]) -> list[int]:
        """One message to each of these owners; gives those that are to be left out."""

        def content(index: int) -> Any:
            player = self._players[index]
            return wire.quotes(invitations[index], player.draw_quotes(self._next_length(player)))

        def take(index: int, reply: Any) -> bool:
            proposals = wire.read_proposals(reply)
            if proposals is None:
                return False
            try:
                self._players[index].take(proposals)
            except BadInput:
                return False
            self._kept.add(index, proposals)
            return True

        away = self._asking.ask(wire.QUOTES, {index: content(index) for index in owners}, take)
        self._kept.save()
        return away

    def _replay(self, index: int, player: CuratorPlayer) -> None:
        """Have a player learn from what came before."""
        proposals, signed = self._kept.of(index)
        while player.played < len(proposals):
            length = self._next_length(player)
            part = slice(player.played, player.played + length)
            player.draw_quotes(length)
            player.take(ProposalBatch(player.played, proposals[part], signed[part]))


class _Replies:
    """All replies that came, on disk: enough to have the curator's players where they were."""

    def __init__(self, path: Path, game: str) -> None:
        self._path, self._game = path, game
        self._replies: dict[str, Any] = {}
        if not path.exists():
            return
        try:
            self._replies = load_arrays(path)
            same = str(self._replies.pop("game")) == game
            moves = [self.of(int(name.partition(".")[2])) for name in self._replies]
            whole = all(len(proposals) == len(signed) for proposals, signed in moves)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise BadInput("replies", str(path), f"cannot be read ({problem}).") from None
        if not same:
            remedy = "are of another game: restore its scenario, and its version of noisemarket."
            raise BadInput("replies", str(path), remedy)
        if not whole:
            raise BadInput("replies", str(path), "are not whole: put the file back.")

    def of(self, index: int) -> tuple[Any, Any]:
        """What an owner proposed in all interactions, and where both signed."""
        proposals = self._replies.get(f"proposals.{index}", np.zeros(0, np.int64))
        return proposals, self._replies.get(f"signed.{index}", np.zeros(0, bool))

    def add(self, index: int, reply: ProposalBatch) -> None:
        """Take in one more reply."""
        proposals, signed = self.of(index)
        self._replies[f"proposals.{index}"] = np.concatenate([proposals, reply.proposals])
        self._replies[f"signed.{index}"] = np.concatenate([signed, reply.signed])

    def save(self) -> None:
        """On disk when this returns."""
        save_arrays(self._path, game=self._game, **self._replies)


class RemoteClock:
    """A clock auction with owners over a line; nothing private of the environment's owners is used.
    ``folder`` is where the curator keeps who left in each lot."""

    def __init__(
        self, environment: Environment, demand: Demand, asking: Asking, folder: Path
    ) -> None:
        self._auction = ClockAuction.of(environment, demand)
        self._levels, self._asking = environment.levels, asking
        self._path = folder / LOTS_KEPT
        self._name = _name_of(environment, demand, asking.line.names)
        self._lots: list[list[int]] = []
        if self._path.exists():
            self._lots = self._read_lots()
        for left in self._lots:
            self._hear(left)

    def run(self, terms: JobTerms, curator_key: str, watch: Watch, stop: Stop) -> Agreement:
        """Run the clock until it stops."""
        auction, asking, owners = self._auction, self._asking, len(self._auction.active)
        work, saving = terms.public(), auction.saving
        invitation = ClockInvitation(terms.job, curator_key, work, self._levels, saving)
        if not auction.over:
            asking.line.meet(asking.line.bounds.wait)
        while not auction.over:
            _refuse_if_stopped(stop)
            left = self._ask(invitation)
            _check_taking_part(asking)
            self._lots.append(left)
            write_json(self._path, {"auction": self._name, "left": self._lots})
            self._hear(left)
            fallen = 1.0 - auction.price / self._levels.payment_levels
            tell_progress(watch, int(fallen * owners), owners)
        messages = auction.answers / owners
        return Agreement(auction.contracts(), np.ones(owners, dtype=bool), messages=messages)

    def _hear(self, left: Sequence[int]) -> None:
        self._auction.hear(~np.isin(self._auction.asked, left))

    def _ask(self, invitation: ClockInvitation) -> list[int]:
        """One question to each owner of a lot; gives those that leave."""
        stays: set[int] = set()

        def take(index: int, reply: Any) -> bool:
            stay = wire.config_of(reply).get("stay")
            if stay is True:
                stays.add(index)
            return isinstance(stay, bool)

        here = set(self._asking.taking_part())
        lot = dict(zip(self._auction.asked.tolist(), self._auction.prices.tolist(), strict=True))
        questions = {price: wire.price(invitation, price) for price in set(lot.values())}
        asked = {index: questions[price] for index, price in lot.items() if index in here}
        self._asking.ask(wire.PRICE, asked, take)
        return sorted(set(lot) - stays)

    def _read_lots(self) -> list[list[int]]:
        try:
            kept: Mapping[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            same, lots = kept["auction"] == self._name, list(kept["left"])
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise BadInput("clock", str(self._path), f"cannot be read ({problem}).") from None
        if not same:
            raise BadInput("clock", str(self._path), "is of another auction: restore its scenario.")
        return lots


def _name_of(environment: Environment, demand: Demand, names: list[str]) -> str:
    """All that decides how a clock goes on after the same answers."""
    now, population = environment.phases[-1], environment.population
    public = [asdict(one) for one in (environment.levels, environment.surface, demand)]
    weights = [now.quality_weight, now.quality_value, now.payment_cost]
    arrays = population.data_size, now.beta, population.key
    text = canonical([*public, names, weights])
    return digest(text.encode(), *(one.tobytes() for one in arrays)).hex()


def _refuse_if_stopped(stop: Stop) -> None:
    if stop():
        raise Interrupted("stopped while negotiating; nothing was signed yet.")


def _check_taking_part(asking: Asking) -> None:
    if not asking.taking_part():
        raise NoisemarketError("No owner has taken part in the negotiation.")


def tell_progress(watch: Watch, done: int, owners: int) -> None:
    """Say how far a negotiation is whose contracts are not known here yet."""
    watch(Progress(slice(0, 0), same_for_all(0, 0, 0), done, owners))
