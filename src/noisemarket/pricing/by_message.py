"""Contracts by learning with messages: the game that two machines play, in one process.

The players are the very ones that the two sides run on their own machines. So a simulation with
the same messages and seeds ends with the same contracts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.pricing.batch import PlayConfig
from noisemarket.pricing.mechanism import Agreement, Progress, RunOptions, same_for_all
from noisemarket.pricing.messages import CuratorPlayer, message_lengths
from noisemarket.pricing.players import (
    BISECTION,
    GameRules,
    curator_player,
    owner_player,
    seeds,
)
from noisemarket.pricing.rule import Rule

MOST_MESSAGES = 40
"""Messages to an owner in a bisection at most."""


def game_rules(
    environment: Environment, rule: str | type[Rule], config: PlayConfig, per_message: int
) -> GameRules:
    """What is public about a game: what a curator tells an owner before they play."""
    if len(environment.phases) > 1:
        remedy = "preferences cannot change in a game by messages: remove changes, or give 1."
        raise BadInput("learning.interactions_per_message", per_message, remedy)
    return GameRules(
        levels=environment.levels,
        protocol=environment.protocol,
        rule=rule,
        settings=config.settings,
        iterations=config.iterations,
        window=min(config.window, config.iterations),
        interactions_per_message=per_message,
        optimism=config.owner_optimism,
    )


def bisection_rules(environment: Environment, config: PlayConfig) -> GameRules:
    """The same for ``bisection``: one interaction a message, and few of them."""
    few = replace(config, iterations=min(config.iterations, MOST_MESSAGES))
    return replace(
        game_rules(environment, BISECTION, few, 1), protocol="signed", window=MOST_MESSAGES
    )


def curator_against(
    index: int, rules: GameRules, environment: Environment, config: PlayConfig
) -> CuratorPlayer:
    """The curator's player against the owner of that index."""
    key = int(environment.population.key[index])
    side, seed = environment.curator_side(-1, slice(index, index + 1)), seeds(config.seed)[1]
    return curator_player(rules, side, seed, key, config.curator_optimism)


def agreement_of(deals: Mapping[int, tuple[int, int]], owners: int) -> Agreement:
    """The contracts of the owners that took part, from their deals by index."""
    contracts, done = same_for_all(owners, 0, 0), np.zeros(owners, dtype=bool)
    for index, (saving, payment) in deals.items():
        contracts.saving[index], contracts.payment[index] = saving, payment
        contracts.signed[index], done[index] = saving + payment > 0, True
    return Agreement(contracts, done)


def play_by_messages(
    environment: Environment, rule: str | type[Rule], options: RunOptions
) -> Agreement:
    """Play all owners' games in this process, one after the other."""
    config, owners = options.play, len(environment)
    rules = game_rules(environment, rule, config, config.interactions_per_message)
    deals: dict[int, tuple[int, int]] = {}
    for index in range(owners):
        if options.stop():
            break
        one = slice(index, index + 1)
        key, seed = int(environment.population.key[index]), seeds(config.seed)[0]
        owner = owner_player(rules, environment.owner_side(-1, one), seed, key)
        curator = curator_against(index, rules, environment, config)
        for interactions in message_lengths(rules.iterations, rules.interactions_per_message):
            curator.take(owner.answer(curator.draw_quotes(interactions)))
        deals[index] = curator.deal()
        contracts = agreement_of({0: deals[index]}, 1).contracts
        options.watch(Progress(one, contracts, len(deals), owners))
    messages = -(-rules.iterations // rules.interactions_per_message)
    return replace(agreement_of(deals, owners), messages=float(messages))
