"""Contracts by learning with letters: the game as it is played between machines, on one of them.

The very players that the two sides run on machines of their own. So a simulation with the same
letters and seeds ends with the same contracts.
"""

from __future__ import annotations

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.environment import Environment
from noisemarket.learning.batch import PlayConfig
from noisemarket.learning.messages import CuratorPlayer, letters
from noisemarket.learning.players import GameRules, curator_player, owner_player, seeds
from noisemarket.mechanisms.mechanism import (
    Agreement,
    Contracts,
    Progress,
    RunOptions,
    same_for_all,
)


def table_of(environment: Environment, brief: PlayConfig, letter: int) -> GameRules:
    """What is public about a game: what a curator tells an owner before they play."""
    if len(environment.phases) > 1:
        remedy = "preferences that change are played face to face only: drop them, or letter = 1."
        raise BadInput("learning.letter", letter, remedy)
    return GameRules(
        levels=environment.levels,
        protocol=environment.protocol,
        rule=brief.rule,
        settings=brief.settings,
        iterations=brief.iterations,
        window=min(brief.window, brief.iterations),
        letter=letter,
        optimism=brief.owner_optimism,
    )


def curator_of(
    table: GameRules, environment: Environment, brief: PlayConfig, place: int
) -> CuratorPlayer:
    """The curator's player against one owner."""
    one = slice(place, place + 1)
    key = int(environment.population.key[place])
    side, seed = environment.curator_side(-1, one), seeds(brief.seed)[1]
    return curator_player(table, side, 0, seed, key, brief.curator_optimism)


def agreement(deals: dict[int, tuple[int, int]], owners: int) -> Agreement:
    """The contracts of the owners that were played with, from their deals."""
    made, done = same_for_all(owners, 0, 0), np.zeros(owners, dtype=bool)
    for place, (saving, payment) in deals.items():
        made.saving[place], made.payment[place] = saving, payment
        made.signed[place], done[place] = saving + payment > 0, True
    return Agreement(made, done)


def play_by_post(environment: Environment, brief: PlayConfig, task: RunOptions) -> Agreement:
    """Play all owners' games in this process, one after the other."""
    table, owners = table_of(environment, brief, brief.letter), len(environment)
    deals: dict[int, tuple[int, int]] = {}
    for place in range(owners):
        if task.stop():
            break
        one = slice(place, place + 1)
        key, seed = int(environment.population.key[place]), seeds(brief.seed)[0]
        owner = owner_player(table, environment.owner_side(-1, one), 0, seed, key)
        curator = curator_of(table, environment, brief, place)
        for interactions in letters(table.iterations, table.letter):
            curator.take(owner.answer(curator.sheet(interactions)))
        deals[place] = curator.deals.usual()
        made = agreement({0: deals[place]}, 1).contracts
        now = Contracts(made.saving, made.payment, made.signed)
        task.watch(Progress(one, now, len(deals), owners))
    return agreement(deals, owners)
