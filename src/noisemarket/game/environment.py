"""The whole game of a job: both sides' tables as games, contracts, preferences that change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from noisemarket.errors import BadInput
from noisemarket.game.levels import BoolArray, FloatArray, IntArray, Levels, LossSurface
from noisemarket.game.population import Population
from noisemarket.game.sides import EXACT, Behaviour, CuratorSide, OwnerSide, Payoff, scrambled

Protocol = Literal["signed", "simultaneous"]


@dataclass(frozen=True)
class Games:
    """One repeated two-player game per owner; every table is ``(owners, J + 1, K + 1)``.

    ``owner_hopes`` and ``curator_hopes`` are what each side alone would expect if the other agreed
    to anything, ``owner_rewards`` and ``curator_rewards`` what an interaction really pays: a side
    may know its hopes, it learns its rewards only by playing. ``agreed`` says where both sides
    sign. ``sees_proposal``: the curator answers the present proposal (``signed``) rather than the
    previous one (``simultaneous``).
    """

    owner_hopes: FloatArray
    curator_hopes: FloatArray
    agreed: BoolArray
    sees_proposal: bool

    def __len__(self) -> int:
        return len(self.agreed)

    @property
    def owner_rewards(self) -> FloatArray:
        return np.where(self.agreed, self.owner_hopes, 0.0)

    @property
    def curator_rewards(self) -> FloatArray:
        return np.where(self.agreed, self.curator_hopes, 0.0)


def games(owners: OwnerSide, curator: CuratorSide, protocol: Protocol) -> Games:
    """The games that these sides play under this protocol.

    ``simultaneous`` is the paper's: both move at once and every outcome binds. ``signed`` makes
    the contract explicit: the owner proposes a saving, the curator quotes a payment for it, each
    signs if it gains, and without both signatures nothing is traded. Rewards are then counted
    over no trade, a shift by a constant that makes "no deal" worth exactly 0 to both.
    """
    if protocol == "simultaneous":
        hopes, costs = owners.payoffs(), curator.payoffs()
        return Games(hopes, costs, np.ones(hopes.shape, dtype=bool), sees_proposal=False)
    agreed = owners.signs() & curator.signs()
    return Games(owners.gains(), curator.gains(), agreed, sees_proposal=True)


@dataclass(frozen=True)
class Contracts:
    """The array shape of a deal: one saving level and one payment level for every owner.

    ``signed`` says that the owner agreed and something is exchanged: it is False where the sides
    did not agree, and where saving and payment are both level 0. Contracts in force have levels 0
    and 0 without a signature, but for savings that are imposed (``no_dp``).
    """

    saving: IntArray
    payment: IntArray
    signed: BoolArray

    @classmethod
    def of(cls, games: Games, saving: IntArray, payment: IntArray) -> Contracts:
        """The contracts of games in which these levels were proposed and quoted: signed where the
        sides agree and something is traded, else 0 and 0."""
        owners = np.arange(len(games))
        signed = games.agreed[owners, saving, payment] & ((saving > 0) | (payment > 0))
        return cls(np.where(signed, saving, 0), np.where(signed, payment, 0), signed)

    @classmethod
    def same(cls, owners: int, saving: int, payment: int) -> Contracts:
        """The same levels for all owners, signed by none."""
        return cls(
            saving=np.full(owners, saving, np.int64),
            payment=np.full(owners, payment, np.int64),
            signed=np.zeros(owners, dtype=bool),
        )

    @classmethod
    def joined(cls, parts: Sequence[Contracts]) -> Contracts:
        names = ("saving", "payment", "signed")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.saving)


OWNER_PREFERENCES = ("privacy_cost", "markup", "beta")
CURATOR_PREFERENCES = ("quality_weight", "quality_value", "payment_cost")


@dataclass(frozen=True)
class Change:
    """Preferences that change at iteration ``at``, for example with a new task.

    ``scale`` multiplies a preference, ``set`` replaces it: the curator's, or those of a ``share``
    of the owners, drawn by the seed, or of the owners in ``names``.
    """

    at: int
    share: float = 1.0
    names: tuple[str, ...] = ()
    scale: tuple[tuple[str, float], ...] = ()
    set: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Phase:
    """The preferences in force from iteration ``start`` on; ``floor`` is that of an earlier job,
    None for the population's."""

    start: int
    privacy_cost: FloatArray
    markup: FloatArray
    beta: FloatArray
    quality_weight: float
    quality_value: float
    payment_cost: float
    floor: FloatArray | None = None


@dataclass(frozen=True)
class Environment:
    """Levels, payoffs, protocol and preferences: what a mechanism works on."""

    levels: Levels
    surface: LossSurface
    payoff: Payoff
    protocol: Protocol
    payment_value: float
    privacy_weight: float
    population: Population
    phases: tuple[Phase, ...]
    sold: FloatArray | None = None
    behaviour: Behaviour = EXACT

    def __len__(self) -> int:
        return len(self.population)

    def slices(self) -> list[slice]:
        """All owners in slices whose tables take some tens of megabytes."""
        savings, payments = self.levels.shape
        step = max(1, min(4096, 2_000_000 // (savings * payments)))
        return [slice(at, min(at + step, len(self))) for at in range(0, len(self), step)]

    def only(self, phase: int) -> Environment:
        """This environment with the preferences of one phase from the start."""
        return replace(self, phases=(replace(self.phases[phase], start=0),))

    def owner_side(self, phase: int = -1, some: slice = slice(None)) -> OwnerSide:
        now = self.phases[phase]
        return OwnerSide(
            levels=self.levels,
            payoff=self.payoff,
            payment_value=self.payment_value,
            privacy_weight=self.privacy_weight,
            privacy_cost=now.privacy_cost[some],
            markup=now.markup[some],
            floor=(self.population.floor if now.floor is None else now.floor)[some],
            sold=self.sold,
            key=self.population.key[some],
            behaviour=self.behaviour,
        )

    def curator_side(self, phase: int = -1, some: slice = slice(None)) -> CuratorSide:
        now = self.phases[phase]
        return CuratorSide(
            levels=self.levels,
            surface=self.surface,
            quality_weight=now.quality_weight,
            quality_value=now.quality_value,
            payment_cost=now.payment_cost,
            beta=now.beta[some],
        )

    def games(self, phase: int = -1, some: slice = slice(None)) -> Games:
        """The games of some owners in a phase (by default of all, in the last)."""
        return games(self.owner_side(phase, some), self.curator_side(phase, some), self.protocol)


def phases(
    population: Population,
    curator: tuple[float, float, float],
    changes: Sequence[Change],
    seed: np.random.SeedSequence,
) -> tuple[Phase, ...]:
    """The phases that follow from the first preferences and a list of changes."""
    now = Phase(0, population.privacy_cost, population.markup, population.beta, *curator)
    out = [now]
    children = seed.spawn(len(changes))
    for change, child in sorted(zip(changes, children, strict=True), key=lambda pair: pair[0].at):
        now = replace(_after(now, change, population, child), start=change.at)
        if change.at == out[-1].start:
            out[-1] = now
        else:
            out.append(now)
    return tuple(out)


def _after(
    now: Phase, change: Change, population: Population, seed: np.random.SeedSequence
) -> Phase:
    hit = _hit(change, population, seed)
    for name, value in (*change.scale, *change.set):
        if name in CURATOR_PREFERENCES and (change.names or change.share < 1.0):
            remedy = "is the curator's, and there is only one: remove share and names."
            raise BadInput("changes", name, remedy)
        if name not in (*OWNER_PREFERENCES, *CURATOR_PREFERENCES):
            owners, curator = ", ".join(OWNER_PREFERENCES), ", ".join(CURATOR_PREFERENCES)
            remedy = f"owners can change {owners}; the curator {curator}."
            raise BadInput("changes", name, remedy)
        if value < 0:
            raise BadInput(f"changes: {name}", value, "give a number of at least 0.")
    for name, factor in change.scale:
        now = _with(now, name, getattr(now, name) * factor, hit)
    for name, value in change.set:
        now = _with(now, name, value, hit)
    return now


def _with(now: Phase, name: str, new: Any, hit: BoolArray) -> Phase:
    """With a preference changed: the curator's, or that of the owners that are hit."""
    if name in OWNER_PREFERENCES:
        new = np.where(hit, new, getattr(now, name))
    if name == "beta" and np.min(new) <= 0:
        raise BadInput("changes: beta", float(np.min(new)), "beta must stay above 0.")
    if name == "quality_weight" and new > 1:
        raise BadInput("changes: quality_weight", new, "the weight must stay within [0, 1].")
    return replace(now, **{name: new})


def _hit(change: Change, population: Population, seed: np.random.SeedSequence) -> BoolArray:
    """The owners whose preferences change."""
    hit = np.zeros(len(population), dtype=bool)
    if not change.names:
        count = max(1, round(change.share * len(population)))
        salt = seed.generate_state(1, np.uint64)[0]
        hit[np.argsort(scrambled(population.key ^ salt), kind="stable")[:count]] = True
        return hit
    index = {str(name): i for i, name in enumerate(population.names)}
    unknown = [name for name in change.names if name not in index]
    if unknown:
        remedy = "is not an owner of this population: remove it."
        raise BadInput("changes: names", unknown[0], remedy)
    hit[[index[name] for name in change.names]] = True
    return hit
