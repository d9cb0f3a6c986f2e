"""Games by messages: the public rules, the two players, and the curator's side of all games.

``GameRules`` is public: both sides know it. The owner's player is built from the owner's side
alone, the curator's from the curator's side alone. ``play_by_quotes`` plays all owners' games
through an ``Asker``. The compiled loop plays the same games for owners of this process
(``interactions_per_message`` above 1), and ends with the same contracts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.game.environment import Environment
from noisemarket.game.levels import MOST_CELLS, FloatArray, Levels
from noisemarket.game.protocol import Contracts, Protocol
from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.pricing.batch import PlayConfig, seeds
from noisemarket.pricing.bisection import (
    BISECTION,
    MOST_MESSAGES,
    BisectionCurator,
    BisectionOwner,
)
from noisemarket.pricing.draws import Stream
from noisemarket.pricing.mechanism import Agreement, Progress, RunOptions
from noisemarket.pricing.messages import (
    CuratorPlayer,
    LearningCurator,
    LearningOwner,
    OwnerPlayer,
    Stakes,
)
from noisemarket.pricing.rule import Rule, Settings, find_rule

if TYPE_CHECKING:
    from noisemarket.pricing.asker import Asker


@dataclass(frozen=True)
class GameRules:
    """What is public about a game by messages: the grids, the protocol, how both sides learn.

    ``optimism`` is the owner's: its first Q-value in its best conceivable payoffs. ``rule`` is a
    name where the rules are sent to another machine. Preferences may change at interactions
    ``starts``; the first is 0.
    """

    levels: Levels
    protocol: Protocol
    rule: str | type[Rule]
    settings: Settings
    iterations: int
    window: int
    interactions_per_message: int
    optimism: float
    starts: tuple[int, ...] = (0,)

    @property
    def sees_proposal(self) -> bool:
        """Whether the curator answers the present proposal rather than the last one."""
        return self.protocol == "signed"

    @property
    def ends_early(self) -> bool:
        """Whether the game may be over before its last interaction."""
        return self.rule == BISECTION

    def phases(self, environment: Environment) -> list[int]:
        """The phases of an environment that are played; a bisection plays only the last."""
        last = len(environment.phases) - 1
        return [last] if self.rule == BISECTION else list(range(len(self.starts)))

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GameRules:
        """From what ``to_dict`` returned, checked: it may come from another machine."""
        try:
            levels, settings = Levels(**values["levels"]), Settings(**values["settings"])
            starts = tuple(values["starts"])
            rules = cls(**{**values, "levels": levels, "settings": settings, "starts": starts})
            savings, payments = rules.levels.shape
            whole = (
                rules.iterations, rules.window, rules.interactions_per_message,
                savings - 1, payments - 1,
            )  # fmt: skip
            numbers = (*vars(rules.settings).values(), rules.optimism, *vars(rules.levels).values())
            sound = (
                all(type(value) is int and value >= 1 for value in whole)
                and all(isinstance(v, int | float) and 0.0 <= v < 1e30 for v in numbers)
                and all(type(start) is int for start in starts)
                and starts[:1] == (0,)
                and list(starts) == sorted(set(starts))
                and savings * payments <= MOST_CELLS
                and rules.protocol in get_args(Protocol)
            )
        except (TypeError, KeyError, AttributeError, ValueError):
            sound = False
        if not sound:
            raise BadInput("game", "rules", "cannot be played: a value is missing or out of range.")
        if not rules.ends_early:
            find_rule(rules.rule)
        return rules


def game_rules(
    environment: Environment, rule: str | type[Rule], config: PlayConfig, per_message: int
) -> GameRules:
    """The public rules of a learned game."""
    starts = [phase.start for phase in environment.phases if phase.start < config.iterations]
    return GameRules(
        levels=environment.levels,
        protocol=environment.protocol,
        rule=rule,
        settings=config.settings,
        iterations=config.iterations,
        window=min(config.window, config.iterations - starts[-1]),
        interactions_per_message=per_message,
        optimism=config.owner_optimism,
        starts=tuple(starts),
    )


def bisection_rules(environment: Environment, config: PlayConfig) -> GameRules:
    """The public rules of a bisection: one interaction a message, and few of them."""
    few = replace(config, iterations=min(config.iterations, MOST_MESSAGES))
    rules = game_rules(environment, BISECTION, few, 1)
    return replace(rules, protocol="signed", window=MOST_MESSAGES, starts=(0,))


def owner_player(rules: GameRules, sides: Sequence[OwnerSide], seed: int, key: int) -> OwnerPlayer:
    """The player of one owner. ``sides`` are its preferences in each phase, each of one owner;
    ``key`` names its stream of random numbers."""
    if rules.rule == BISECTION:
        return BisectionOwner(sides[-1], rules.window)
    stakes = _stakes(rules, sides)
    return LearningOwner(
        _learner(rules, _hopes(sides[0], rules).T, rules.optimism), stakes, Stream(seed, key),
        sees_proposal=rules.sees_proposal, window=rules.window,
    )  # fmt: skip


def curator_player(
    rules: GameRules, sides: Sequence[CuratorSide], seed: int, key: int, optimism: float
) -> CuratorPlayer:
    """The curator's player against one owner; ``sides`` as in ``owner_player``."""
    if rules.rule == BISECTION:
        return BisectionCurator(sides[-1], rules.window)
    stakes = _stakes(rules, sides)
    return LearningCurator(
        _learner(rules, _hopes(sides[0], rules), optimism), stakes, Stream(seed, key),
        sees_proposal=rules.sees_proposal, window=rules.window,
    )  # fmt: skip


def curator_against(
    index: int, rules: GameRules, environment: Environment, config: PlayConfig
) -> CuratorPlayer:
    """The curator's player against the owner of that index."""
    key, one = int(environment.population.key[index]), slice(index, index + 1)
    sides = [environment.curator_side(phase, one) for phase in rules.phases(environment)]
    return curator_player(rules, sides, seeds(config.seed)[1], key, config.curator_optimism)


def play_by_quotes(
    environment: Environment, rules: GameRules, asker: Asker, options: RunOptions
) -> Agreement:
    """Play the games of all owners through an asker.

    Every owner whose game is not over gets one message with quotes at a time. An owner that does
    not reply, or whose reply does not fit the game, has left: no trade.
    """
    owners = len(environment)
    players = {i: curator_against(i, rules, environment, options.play) for i in range(owners)}
    messages, nobody = 0, Contracts.same(0, 0, 0)
    while not options.stop():
        waiting = {i: one for i, one in players.items() if _goes_on(rules, one)}
        if not waiting:
            deals = {i: one.deal() for i, one in players.items()}
            contracts = agreement_of(deals, owners).contracts
            options.watch(Progress(slice(0, owners), contracts, owners, owners))
            return Agreement(contracts, np.ones(owners, dtype=bool), messages=messages / owners)
        length = rules.interactions_per_message
        quotes = {
            i: one.draw_quotes(min(length, rules.iterations - one.played))
            for i, one in waiting.items()
        }
        messages += len(quotes)
        replies = asker.play(rules, quotes)
        for i, one in waiting.items():
            try:
                one.take(replies[i])
            except (KeyError, BadInput):
                del players[i]
        if not players:
            raise NoisemarketError("No owner has taken part in the negotiation.")
        share = min(one.played for one in players.values()) / rules.iterations
        options.watch(Progress(slice(0, 0), nobody, int(share * owners), owners))
    return Agreement(Contracts.same(owners, 0, 0), np.zeros(owners, dtype=bool))


def _goes_on(rules: GameRules, player: CuratorPlayer) -> bool:
    return player.played < rules.iterations and not player.settled


def agreement_of(deals: Mapping[int, tuple[int, int]], owners: int) -> Agreement:
    """The contracts of the owners that took part, from their deals by index."""
    contracts, done = Contracts.same(owners, 0, 0), np.zeros(owners, dtype=bool)
    for index, (saving, payment) in deals.items():
        contracts.saving[index], contracts.payment[index] = saving, payment
        contracts.signed[index], done[index] = saving + payment > 0, True
    return Agreement(contracts, done)


def _hopes(side: OwnerSide | CuratorSide, rules: GameRules) -> FloatArray:
    """What a side would get if the other agreed to everything."""
    return np.asarray((side.gains() if rules.sees_proposal else side.payoffs())[0])


def _stakes(rules: GameRules, sides: Sequence[OwnerSide | CuratorSide]) -> Stakes:
    """A side's rewards and where it signs; where every outcome binds, it always signs."""
    rewards = np.stack([_hopes(side, rules) for side in sides])
    signs = np.ones(rewards.shape, dtype=bool)
    if rules.sees_proposal:
        signs = np.stack([side.signs()[0] for side in sides])
    return Stakes(rewards, signs, np.array(rules.starts))


def _learner(rules: GameRules, hopes: FloatArray, optimism: float) -> Rule:
    """A learning rule with its first Q-values; ``hopes`` is indexed (state, action)."""
    kind = find_rule(rules.rule)
    first = kind.first_values(hopes[None], np.array([[[optimism * hopes.max()]]]))
    return kind(first[0], rules.settings)
