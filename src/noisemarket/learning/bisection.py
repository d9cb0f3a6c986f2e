"""Plays ``bisection`` for a batch of pairs: what both sides want in, what they signed out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from noisemarket.game.sides import CuratorSide, OwnerSide
from noisemarket.learning.batch import PlayConfig
from noisemarket.learning.bisection_curator import curator_beliefs
from noisemarket.learning.bisection_owner import owner_beliefs, wants_of

if TYPE_CHECKING:
    from noisemarket.learning.compiled.bisection_loop import Bargains


def bargain_batch(
    config: PlayConfig,
    owners: Sequence[OwnerSide],
    curators: Sequence[CuratorSide],
    starts: Sequence[int],
    *,
    over_no_trade: bool = True,
) -> Bargains:
    """Play the pairs of these sides; those of index i hold from interaction ``starts[i]`` on.

    Payoffs are counted over no trade, or else in full, as in the simultaneous game. With
    ``config.compiled = False`` the same functions are played as plain Python.
    """
    from numba.core import config as numba_config  # slow to import, and few commands learn

    from noisemarket.learning.compiled.bisection_loop import BargainArrays, Bargains, bargain_all

    live = [i for i, start in enumerate(starts) if start < config.iterations]
    wants = [wants_of(owners[i]) for i in live]
    arrays = BargainArrays(
        starts=np.array([*(starts[i] for i in live), config.iterations], dtype=np.int64),
        reserves=np.stack([one.reserves for one in wants]),
        gains=np.stack([one.gains for one in wants]),
        limits=np.stack([curators[i].limits() for i in live]),
        worth=np.stack([curators[i].worth() for i in live]),
        income=owners[0].income(),
        prices=np.stack([curators[i].price() for i in live]),
    )
    _, pairs, savings = arrays.reserves.shape
    base = np.zeros((len(live), pairs, 2))
    if not over_no_trade:
        base[:, :, 0] = [owners[i].base() for i in live]
        base[:, :, 1] = [curators[i].base() for i in live]
    output = Bargains(
        counts=np.zeros((config.blocks, 5), np.int64),
        payoffs=np.zeros((config.blocks, 2)),
        deals=np.zeros((pairs, 2), np.int64),
        settled=np.zeros(pairs, np.int64),
    )
    compiled = config.compiled and not numba_config.DISABLE_JIT
    play = bargain_all if compiled else getattr(bargain_all, "py_func", bargain_all)
    play(arrays, base, config.trace_every, curator_beliefs(savings), owner_beliefs(savings), output)
    return output
