"""The learned game over Flower: the curator's players here, each owner's player with the owner.

Every reply is kept, so a market that was killed asks for none twice: it goes on from what it has,
and an owner that is asked again gives the answer that it gave.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.files import digest, save_arrays
from noisemarket.flower import wire
from noisemarket.flower.asking import Asking
from noisemarket.game.environment import Environment
from noisemarket.learning.messages import CuratorPlayer, OfferBatch
from noisemarket.learning.players import BISECTION, GameRules
from noisemarket.mechanisms.by_message import (
    agreement_of,
    bisection_rules,
    curator_against,
    game_rules,
)
from noisemarket.mechanisms.mechanism import Agreement, Progress, same_for_all
from noisemarket.negotiation import run_options
from noisemarket.owner.record import Invitation
from noisemarket.owner.terms import JobTerms
from noisemarket.scenario import Scenario

REPLIES = "replies.npz"
MESSAGES_IN_A_GAME = 8
"""Messages to an owner in a negotiation, where the scenario does not say how many."""


def interactions(scenario: Scenario) -> int:
    """How many interactions go into one message."""
    learning = scenario.learning
    if learning.interactions_per_message > 1:
        return learning.interactions_per_message
    return max(2, math.ceil(learning.iterations / MESSAGES_IN_A_GAME))


class RemoteGame:
    """The game of a scenario with owners over a line.

    Args:
        scenario: what is played.
        environment: its game.
        rule: how both sides learn.
        asking: asks the owners.
        folder: where the curator keeps replies.
    """

    def __init__(
        self,
        scenario: Scenario,
        environment: Environment,
        rule: str,
        asking: Asking,
        folder: Path,
    ) -> None:
        self._environment, self._asking, self._folder = environment, asking, folder
        self._config = run_options(scenario).play
        if rule == BISECTION:
            self._table = bisection_rules(environment, self._config)
        else:
            self._table = game_rules(environment, rule, self._config, interactions(scenario))

    def play(
        self,
        terms: JobTerms,
        curator_key: str,
        watch: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Agreement:
        """Play the game to its end with all who take part."""
        table, environment = self._table, self._environment
        names, work = self._asking.line.names, terms.public()
        players = {
            index: curator_against(index, table, environment, self._config)
            for index in self._asking.taking_part()
        }
        invitations = [
            Invitation(terms.job, curator_key, int(key), table, work)
            for key in environment.population.key
        ]
        payoffs = environment.curator_side().payoffs()
        kept = _Replies(self._folder / REPLIES, table, names, payoffs)
        for index, player in players.items():
            kept.replay(index, player)
        if self._behind(players):
            self._asking.line.meet(self._asking.line.bounds.wait)
        while behind := self._behind(players):
            if stop():
                raise Interrupted("stopped while negotiating; nothing was signed yet.")
            for index in self._exchange(behind, players, invitations, kept):
                del players[index]
            if not players:
                raise NoisemarketError("No owner has taken part in the negotiation.")
            played = [players[index].played for index in behind if index in players]
            share = min(played, default=0) / table.iterations
            nobody = same_for_all(0, 0, 0)
            watch(Progress(slice(0, 0), nobody, int(share * len(names)), len(names)))
        deals = dict.fromkeys(range(len(names)), (0, 0))
        deals |= {index: player.deal() for index, player in players.items()}
        return agreement_of(deals, len(names))

    def _behind(self, players: Mapping[int, CuratorPlayer]) -> list[int]:
        """The owners whose negotiation is not over."""
        most = self._table.iterations
        return [p for p, one in players.items() if one.played < most and not one.settled]

    def _exchange(
        self,
        owners: Sequence[int],
        players: Mapping[int, CuratorPlayer],
        invitations: Sequence[Invitation],
        kept: _Replies,
    ) -> list[int]:
        """One message to each of these owners; gives those that are to be left out."""
        table = invitations[0].table

        def content(index: int) -> Any:
            player = players[index]
            length = min(table.interactions_per_message, table.iterations - player.played)
            return wire.quotes(invitations[index], player.draw_quotes(length))

        def take(index: int, reply: Any) -> bool:
            offers = wire.read_offers(reply)
            if offers is None:
                return False
            try:
                players[index].take(offers)
            except BadInput:
                return False
            kept.add(index, offers)
            return True

        away = self._asking.ask(wire.QUOTES, {index: content(index) for index in owners}, take)
        kept.save()
        return away


class _Replies:
    """All replies that came, on disk: enough to have the curator's players where they were."""

    def __init__(
        self, path: Path, table: GameRules, names: Sequence[str], payoffs: NDArray[np.float64]
    ) -> None:
        self._path = path
        game = json.dumps([table.to_dict(), list(names)], sort_keys=True)
        self._game = digest(game.encode(), payoffs.tobytes()).hex()
        self._length, self._iterations = table.interactions_per_message, table.iterations
        self._replies: dict[str, Any] = {}
        if not path.exists():
            return
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                same = str(kept["game"]) == self._game
                self._replies = {name: kept[name] for name in kept.files if name != "game"}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as problem:
            raise BadInput("replies", str(path), f"cannot be read ({problem}).") from None
        if not same:
            raise BadInput("replies", str(path), "are of another game: restore its scenario.")

    def replay(self, index: int, player: CuratorPlayer) -> None:
        """Have a player learn from what came before."""
        offers = self._replies.get(f"offers.{index}", np.zeros(0, np.int64))
        signed = self._replies.get(f"signed.{index}", np.zeros(0, bool))
        while player.played < len(offers):
            length = min(self._length, self._iterations - player.played)
            part = slice(player.played, player.played + length)
            player.draw_quotes(length)
            player.take(OfferBatch(player.played, offers[part], signed[part]))

    def add(self, index: int, reply: OfferBatch) -> None:
        """Take in one more reply."""
        for name, more in (("offers", reply.offers), ("signed", reply.signed)):
            before = self._replies.get(f"{name}.{index}", more[:0])
            self._replies[f"{name}.{index}"] = np.concatenate([before, more])

    def save(self) -> None:
        """On disk when this returns."""
        save_arrays(self._path, game=self._game, **self._replies)
