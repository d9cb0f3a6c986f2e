"""How an owner makes its update private: one interface, one protection a file."""

from __future__ import annotations

import dataclasses
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.models.model import Flat, Model, Records
from noisemarket.parts import full_name
from noisemarket.privacy.accountant import OwnerId, PrivacyBudget
from noisemarket.privacy.noise import LARGEST, NoiseSource
from noisemarket.privacy.noise_check import Evidence, check_steps, check_upload
from noisemarket.privacy.zcdp import MOST, Neighbours, gaussian_epsilon, gaussian_rho

Upload = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class UploadTask:
    """One owner's part in a round; ``seed`` orders batches and nothing else."""

    model: Model
    start: Flat
    records: Records
    sigma: float
    noise: NoiseSource
    seed: np.random.SeedSequence

    @cached_property
    def rng(self) -> np.random.Generator:
        """Slow to make, and few protections draw anything."""
        return np.random.default_rng(self.seed)


class Protection(ABC):
    """How an owner trains and what it adds, so that its upload costs a known amount of privacy.

    Subclasses are frozen dataclasses at the top level of a module; their fields are their settings:
    numbers, texts, or lists of these. ``upload`` and ``sensitivity`` are needed. Numbers must be
    positive, unless a subclass has a ``__post_init__`` of its own.

    Example:
        A protection of a user's own, chosen by ``privacy.protection = "my_package:Mine"``::

            @dataclass(frozen=True)
            class Mine(Protection):
                clip: float = 1.0
                strength: int = 3
                scenario_keys = {"clip": "privacy.clip"}

        ``strength`` has no key of its own, so it comes from the table ``[privacy.settings]``.
    """

    name: str
    """Its name in scenarios and contracts; for a class of one's own ``package.module:Name``."""

    scenario_keys: ClassVar[Mapping[str, str]] = {}
    """Settings that a scenario has a key for, such as ``{"clip": "privacy.clip"}``."""

    noise_in_steps: ClassVar[bool] = False
    """Whether noise goes on several steps, of which the later ones react to it."""

    stated: ClassVar[tuple[str, ...]] = ()
    """Methods of the number of records whose values contracts state, such as ``reach``."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "name" not in vars(cls):
            cls.name = full_name(cls)

    def whole_owner(self, records: int) -> bool:
        """Whether all data of an owner of so many records is hidden, not just one record."""
        return False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, kind = getattr(self, field.name), field.type
            if kind in ("int", int) and not _is_whole(value):
                raise BadInput(field.name, value, f"give a whole number from 1 to {MOST:,}.")
            if kind in ("float", float) and not _is_positive(value):
                raise BadInput(field.name, value, "give a positive number.")
            if field.name == "clip" and value > LARGEST:
                raise BadInput("clip", value, f"give at most {LARGEST:.0f}: noise has no more.")

    # What it does

    @abstractmethod
    def upload(self, task: UploadTask) -> Upload:
        """Train on an owner's records; returns the protected update to ``task.start``."""

    def uploads(self, tasks: Sequence[UploadTask]) -> Iterable[Upload]:
        """The uploads of some owners, who start from one model: the same bits as of each alone."""
        return map(self.upload, tasks)

    def parts(self, records: int) -> int:
        """Of how many clipped parts (shards, examples) an update or a step is the mean.

        An audit builds its attack on it, and on settings called ``clip``, ``rate``, ``steps`` and
        ``records_per_shard``."""
        return 1

    # What it costs

    @abstractmethod
    def sensitivity(self, dimension: int, records: int, neighbours: Neighbours) -> float:
        """How far one record (or owner) can move the upload: what sigma is set against.

        An upper bound in Euclidean norm, with the rounding of the noise grid for a model of
        ``dimension`` parameters; infinity for none. ``records`` is the number of the owner's.
        """

    def protects(self, neighbours: Neighbours, records: int) -> str:
        """The change of the data that the noise hides, in words, by the number of ``records``."""
        whole = self.whole_owner(records)
        unit = "the owner's whole data" if whole else "one record"
        if neighbours is Neighbours.REPLACE_ONE:
            return f"{unit}, replaced by any other"
        if whole:
            return f"{unit}, its clipped update set to zero"
        return f"{unit}, its clipped gradient zeroed out"

    def budget(
        self,
        owner: OwnerId,
        sigma: float,
        *,
        dimension: int,
        records: int,
        neighbours: Neighbours,
        delta: float,
        rho_cap: float = math.inf,
        simulated: bool = False,
    ) -> PrivacyBudget:
        """The privacy budget of an owner under this protection, at the contracted noise."""
        return PrivacyBudget(
            owner=owner,
            protection=self.name,
            sigma=sigma,
            sensitivity=self.sensitivity(dimension, records, neighbours),
            neighbours=neighbours,
            protects=self.protects(neighbours, records),
            delta=delta,
            rho_cap=rho_cap,
            simulated=simulated,
        )

    # How a curator checks it

    def reach(self, records: int) -> float:
        """The greatest length of an upload without its noise; infinity where nothing bounds it."""
        return math.inf

    def usual_length(self, uploads: Mapping[int, Upload], sigma: Mapping[int, float]) -> float:
        """How long an update may be by the round's uploads, where there is no ``reach``."""
        return math.inf

    def check_upload(
        self,
        upload: Upload,
        sigma: float,
        rate: float,
        stated: Mapping[str, Any],
        longest: float = math.inf,
    ) -> Evidence:
        """Whether the contracted noise is in an upload, at one side's false alarm ``rate``."""
        check = check_steps if self.noise_in_steps else check_upload
        return check(upload, sigma, min(self.stated_reach(stated), longest), rate)

    def stated_reach(self, stated: Mapping[str, Any]) -> float:
        """``reach`` by what a contract states."""
        return float(stated["reach"]) if "reach" in self.stated else self.reach(0)

    def explain(self, evidence: Evidence) -> str:
        """A verdict of ``check_upload`` in words."""
        return evidence.verdict

    # Its settings

    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _fields(type(self))}

    def contract_settings(self, records: int) -> dict[str, Any]:
        """What a contract with an owner of so many records states: settings and figures."""
        return self.settings() | {name: getattr(self, name)(records) for name in self.stated}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], field: str = "settings") -> Self:
        """The protection with these settings; others keep their defaults."""
        known = _fields(cls)
        for name, value in settings.items():
            if name not in known:
                choices = ", ".join(known) or "no settings"
                remedy = f"is not a setting of {cls.name}, which has {choices}."
                raise BadInput(f"{field}.{name}", value, remedy)
        for name, one in known.items():
            without = one.default is one.default_factory is dataclasses.MISSING
            if without and name not in settings:
                raise BadInput(f"{field}.{name}", None, f"{cls.name} needs it: give a value.")
        return cls(**settings)

    @classmethod
    def from_contract(cls, stated: Mapping[str, Any]) -> Self:
        """The protection that a contract states; inverse of ``contract_settings``."""
        return cls.from_settings(cls.settings_in(stated))

    @classmethod
    def settings_in(cls, stated: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in stated.items() if name not in cls.stated}

    @classmethod
    def from_scenario(cls, values: Mapping[str, Any], settings: Mapping[str, Any]) -> Self:
        """The protection by a scenario's values, such as ``privacy.clip``, and own settings.

        A value without a section follows from the model.
        """
        table = "privacy.settings"
        for name, key in cls.scenario_keys.items():
            if name in settings:
                fixed = "follows from the model: remove it."  # no key of a scenario
                remedy = f"give it as {key} instead." if "." in key else fixed
                raise BadInput(f"{table}.{name}", settings[name], remedy)
        read = {name: values[key] for name, key in cls.scenario_keys.items()}
        return cls.from_settings(read | dict(settings), table)


def privacy_sold(
    protection: Protection,
    sigmas: Sequence[float],
    *,
    rounds: int,
    records: int,
    neighbours: str,
    delta: float,
) -> NDArray[np.float64]:
    """The epsilon of the whole job at each noise, less that at the first, which is all the noise.

    It is counted in units in which half of all noise is worth itself: ``sigmas[0] / 2``. Noise 0
    sells infinitely much.
    """
    reach = protection.sensitivity(0, records, Neighbours.named(neighbours))

    def epsilon(sigma: float) -> float:
        return gaussian_epsilon(rounds * gaussian_rho(reach, sigma), delta)

    remedy = f"{protection.name} has no epsilon to sell: choose privacy_loss, or a protection."
    if math.isinf(reach):
        raise BadInput("game.payoff", "epsilon_loss", remedy)
    least, half = epsilon(sigmas[0]), epsilon(sigmas[0] / 2.0)
    if not half > least:
        remedy = f"half of the noise costs no epsilon at delta {delta:g}: choose privacy_loss."
        raise BadInput("game.payoff", "epsilon_loss", remedy)
    unit = sigmas[0] / 2.0 / (half - least)
    return np.array([unit * (epsilon(sigma) - least) for sigma in sigmas])


def _is_whole(value: Any) -> bool:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return whole and 1 <= value <= MOST


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0.0 < value < math.inf


def _fields(kind: Any) -> dict[str, dataclasses.Field[Any]]:
    if not dataclasses.is_dataclass(kind):
        raise BadInput("protection", kind.__name__, "make it a dataclass: its fields are settings.")
    return {field.name: field for field in dataclasses.fields(kind) if field.init}
