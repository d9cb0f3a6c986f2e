"""An owner's side of a job: a folder with its records, the terms it agreed to, and its journal.

    folder/
      records.npz                 the owner's data: images, labels; never leaves
      jobs/<job>/terms.json       what the owner agreed to in a job
      jobs/<job>/release.npz      the last release, noise and all, should it be asked for again
      jobs/<job>/privacy.journal  what it has released, charged before the release

A SuperNode starts a new process for every message and forgets its state when it ends. So all that
must last is here, and what only training needs is imported when there is something to train.
Nothing is taken from a message but which job and which round it is; whatever else the message says
must agree with the terms, or the owner refuses.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.files import digest, is_open, private_folder, save_arrays, write_atomic
from noisemarket.flower.api import ArrayRecord, ConfigRecord, Context, Error, Message

if TYPE_CHECKING:
    from noisemarket.federated.protections import Protection
    from noisemarket.privacy.noise import NoiseSource
    from noisemarket.privacy.statement import PrivacyBudget

RECORDS, TERMS, JOURNAL = "records.npz", "terms.json", "privacy.journal"
RELEASE = "release.npz"
REFUSED, FAILED = 1001, 1002
"""Codes of an owner's error replies: it will not, or it could not."""

_JOB = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,79}")
_ARRAY = "array."

Arrays = Mapping[str, NDArray[Any]]
Handler = Callable[[Message, Context], Message]


class Refused(NoisemarketError):
    """What an owner will not do. The text goes over the wire: it holds nothing private."""


@dataclass(frozen=True)
class Terms:
    """What an owner agreed to in a job: its noise, how it protects, and what it may spend.

    ``index`` is its place among the owners, ``settings`` those of the protection, ``model`` what
    the app needs to build the model. ``rounds`` count from 0; without a number, only the cap ends
    them. ``noise`` is ``secure``, or ``simulated``: drawn from ``seed``, not private. ``seed`` also
    orders batches.
    """

    job: str
    owner: str
    index: int
    sigma: float
    protection: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    neighbours: str = "replace_one"
    delta: float = 1e-5
    rho_cap: float = math.inf
    noise: str = "secure"
    seed: int = 0
    rounds: int | None = None

    def __post_init__(self) -> None:
        if not _JOB.fullmatch(self.job):
            raise BadInput("job", self.job, "give letters, digits, - and _, at most 80 of them.")
        if not 0.0 <= self.sigma < math.inf:
            raise BadInput("sigma", self.sigma, "give a number that is not negative.")
        if self.noise not in ("secure", "simulated"):
            raise BadInput("noise", self.noise, "give secure or simulated.")

    def budget(self, protection: Protection, dimension: int, records: int) -> PrivacyBudget:
        """What the accountant holds the owner to."""
        from noisemarket.privacy.zcdp import Neighbours

        return protection.budget(
            self.owner,
            self.sigma,
            dimension=dimension,
            records=records,
            neighbours=Neighbours.named(self.neighbours),
            delta=self.delta,
            rho_cap=self.rho_cap,
            simulated=self.noise == "simulated",
        )

    def to_json(self) -> str:
        """As a file; a cap that is infinite is null."""
        values = dataclasses.asdict(self)
        values["rho_cap"] = None if math.isinf(self.rho_cap) else self.rho_cap
        return json.dumps(values, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """From what ``to_json`` gave."""
        values = json.loads(text)
        cap = values.pop("rho_cap", None)
        return cls(**values, rho_cap=math.inf if cap is None else float(cap))


@dataclass(frozen=True)
class Task:
    """What a message asks for: a round of a job, from a global model."""

    job: str
    round_number: int
    sigma: float | None


class OwnerFolder:
    """An owner's folder, as its SuperNode's config names it: ``owner`` and ``owner-folder``."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    @classmethod
    def of(cls, context: Context) -> OwnerFolder:
        """The folder that this node's own config names."""
        config = context.node_config
        name, path = str(config.get("owner", "")), str(config.get("owner-folder", ""))
        if not name or not path:
            raise Refused("this node's config names no owner and owner-folder")
        folder = Path(path)
        if not folder.is_dir():
            raise Refused("the owner's folder is not there")
        if is_open(folder):
            raise Refused("the owner's folder is open to others: chmod 700")
        return cls(name, folder)

    def terms(self, job: str) -> Terms:
        """What the owner agreed to in a job; refused if that is nothing."""
        if not _JOB.fullmatch(job):
            raise Refused("no such job")
        try:
            terms = Terms.from_json((self._job(job) / TERMS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise Refused("no contract in this job") from None
        if (terms.job, terms.owner) != (job, self.name):
            raise NoisemarketError(f"{self._job(job) / TERMS} is of another owner or job.")
        return terms

    def agree(self, terms: Terms) -> None:
        """Keep the terms of a job. Those of a job under way cannot change."""
        place = self.job(terms.job) / TERMS
        if place.exists() and place.read_text(encoding="utf-8") != terms.to_json():
            raise BadInput("terms", str(place), "are fixed: a job's contract cannot change.")
        write_atomic(place, terms.to_json(), private=True)

    def keep_records(self, images: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Write the owner's data, ready for the model (``Dataset.ready``)."""
        path = private_folder(self.path) / RECORDS
        save_arrays(path, private=True, images=images, labels=labels)

    def records(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The owner's data."""
        with np.load(self.path / RECORDS, allow_pickle=False) as kept:
            return kept["images"], kept["labels"]

    def once(
        self,
        terms: Terms,
        round_number: int,
        start: Arrays,
        make: Callable[[NoiseSource], Arrays],
    ) -> Arrays:
        """What goes out in a round from this global model: made once, and kept.

        The same round from the same model once more gets the very same bits, whatever app asks. All
        else is made with new noise: none ever serves for two updates.
        """
        name = _digest(start, b"%d" % round_number)
        place = self._job(terms.job) / RELEASE
        if place.exists():
            with np.load(place, allow_pickle=False) as kept:
                if str(kept["name"]) == name:
                    return {n.removeprefix(_ARRAY): kept[n] for n in kept.files if n != "name"}
        made = make(self._noise(terms).stream(terms.index, round_number))
        arrays: dict[str, Any] = {_ARRAY + name: array for name, array in made.items()}
        save_arrays(place, private=True, name=np.array(name), **arrays)
        return made

    def charge(
        self, terms: Terms, budget: PrivacyBudget, round_number: int, release: Arrays
    ) -> None:
        """Pay for a release, on disk, before it goes out. Refused beyond the cap.

        Its name on the account is its content: the same bits once more cost nothing more, and no
        others pass for them.
        """
        from noisemarket.privacy.accountant import BudgetSpent
        from noisemarket.privacy.journal import JournalledAccountant

        journal = self._job(terms.job) / JOURNAL
        journal.touch(mode=0o600)
        try:
            with JournalledAccountant(journal, [budget]) as accountant:
                accountant.charge(self.name, round_number + 1, release_id=_digest(release))
        except BudgetSpent:
            raise Refused("the privacy budget is spent") from None

    def journal(self, job: str) -> Path:
        """Where what was spent in a job stands."""
        return self._job(job) / JOURNAL

    def job(self, job: str) -> Path:
        """A job's folder, made if need be, if that is a name that a job may have."""
        if not _JOB.fullmatch(job):
            raise Refused("no such job")
        for place in (self.path, self.path / "jobs"):
            private_folder(place)
        return private_folder(self._job(job))

    def _noise(self, terms: Terms) -> NoiseSource:
        from noisemarket.privacy.noise import SecureNoise, SimulatedNoise

        return SimulatedNoise(terms.seed) if terms.noise == "simulated" else SecureNoise()

    def _job(self, job: str) -> Path:
        return self.path / "jobs" / job


def task_of(message: Message) -> Task:
    """What a message asks for, each part checked."""
    config = message.content.get("config")
    if not isinstance(config, ConfigRecord):
        raise Refused("the message has no config")
    job, sigma = config.get("job"), config.get("sigma")
    number, first = config.get("round"), 0
    if number is None:  # Flower's own counts from 1
        number, first = config.get("server-round"), 1
    if not isinstance(job, str):
        raise Refused("the message names no job")
    if isinstance(number, bool) or not isinstance(number, int) or not first <= number < 2**31:
        raise Refused("the message names no round")
    if sigma is not None and not isinstance(sigma, float):
        raise Refused("sigma is no number")
    return Task(job, number - first, sigma)


def agreed(owner: OwnerFolder, task: Task) -> Terms:
    """The owner's own terms for a task; refused where the message says otherwise."""
    terms = owner.terms(task.job)
    if task.sigma is not None and task.sigma != terms.sigma:
        raise Refused("sigma is not the contracted one")
    if terms.rounds is not None and task.round_number >= terms.rounds:
        raise Refused("the contract has no such round")
    return terms


def arrays_of(message: Message) -> ArrayRecord:
    """The model in a message."""
    arrays = message.content.get("arrays")
    if not isinstance(arrays, ArrayRecord) or not arrays:
        raise Refused("the message has no model")
    return arrays


def discreet(handler: Handler) -> Handler:
    """Answer failures without saying more than is public.

    Flower sends the text of an exception to the curator. It could hold anything: figures of the
    account, paths, values of records. It goes to this node's own log instead.
    """

    @wraps(handler)
    def careful(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except Refused as problem:
            getLogger(__name__).warning("Refused: %s.", problem)
            return Message(Error(REFUSED, str(problem)), reply_to=message)
        except Exception:
            getLogger(__name__).exception("The message could not be answered.")
            return Message(Error(FAILED, "failed on the owner's side"), reply_to=message)

    return careful


def _digest(arrays: Arrays, *more: bytes) -> str:
    """What tells these arrays from any others, wherever one ends and the next begins."""
    parts = list(more)
    for name, array in arrays.items():
        parts += [f"{name}\0{array.dtype.str}\0{array.shape}".encode(), array.tobytes()]
    return digest(*parts).hex()
