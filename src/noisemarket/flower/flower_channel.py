"""The channel over Flower: a question to an owner is a message to its SuperNode.

``owner_messages`` says what is in each; here it becomes Flower's records, and back. Owners that are
away, too late, that decline or answer what cannot be read do not stop the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, RecordDict

from noisemarket.errors import NoisemarketError
from noisemarket.federated.engine import Job, Score, Weights, score_of
from noisemarket.files import digest, write_json
from noisemarket.flower.line import Bounds, Line
from noisemarket.flower.records import Said, array_record, content, plain_of, read_houses
from noisemarket.market.channel import Channel
from noisemarket.market.orders import Order
from noisemarket.market.run_folder import JOURNAL, MarketFolder
from noisemarket.owner.folder import Declined
from noisemarket.owner.owner_messages import PROTOCOL, Question, Refused, Reply

if TYPE_CHECKING:
    from flwr.serverapp import Grid

TRAFFIC = "traffic.json"


class FlowerChannel(Channel):
    """Owners over a line to their SuperNodes, inside a ServerApp.

    ``names`` are the owners of the job, ``folder`` is its run folder, and ``houses`` the file that
    lists which SuperNodes serve several owners, if any do.
    """

    def __init__(
        self,
        grid: Grid,
        names: Sequence[str],
        folder: MarketFolder,
        bounds: Bounds | None = None,
        houses: Path | None = None,
    ) -> None:
        self._grid, self._names, self._bounds = grid, list(names), bounds or Bounds()
        self._houses, self._folder = houses, folder.curator
        self.patience, self.journal = self._bounds.wait, folder.curator / JOURNAL
        self.here = self._bounds.simulated
        self._job: Job | None = None

    @cached_property
    def line(self) -> Line:
        """The line to the owners: nothing is read before it is used."""
        listed = read_houses(self._houses, self._names) if self._houses else None
        return Line(self._grid, self._names, self._bounds, listed)

    def ask(
        self, questions: Mapping[int, Question], timeout: float | None = None
    ) -> dict[int, Reply]:
        if not questions:
            return {}
        names, first = self.line.names, next(iter(questions.values()))
        contents = {names[index]: one for index, one in _contents(questions).items()}
        self.line.declined.clear()
        bound = self.line.bounds.timeout
        timeout = bound if timeout is None else min(timeout, bound)
        number = getattr(first, "round_number", "")
        said = self.line.ask(first.kind, contents, timeout=timeout, group=str(number))
        replies: dict[int, Reply] = {}
        for index, question in questions.items():
            if names[index] in said:
                replies[index] = _reply(question, said[names[index]])
            elif names[index] in self.line.declined:
                replies[index] = Refused(self.line.declined[names[index]])
        return replies

    def present(self) -> Collection[int]:
        return self.line.meet(0.0)

    def prepare(self, order: Order, job: str) -> Order:
        if order.job.noise != "secure":
            return order
        # Asked again from the same model, owners send the same bits. The curator knows nothing of
        # their noise, but when it is the same: this key gives releases names for its own account.
        names = digest(b"names of releases", job.encode())
        return replace(order, job=replace(order.job, noise_key=names))

    def start_training(self, job: Job) -> None:
        if len(self.line.names) != len(job):
            names = len(self.line.names)
            raise NoisemarketError(f"{len(job)} owners in the job, but {names} names.")
        self._job = job

    def score(self, weights: Weights) -> Score:
        assert self._job is not None
        return score_of(self._job.model(self._job.seed), weights, self._job.data)

    def settled(self) -> None:
        write_json(self._folder / TRAFFIC, [asdict(one) for one in self.line.traffic])


def _reply(question: Question, said: Said) -> Reply:
    try:
        return question.reply.read(*plain_of(said))
    except Declined:
        return Refused("unusable answers")


def _contents(questions: Mapping[int, Question]) -> dict[int, RecordDict]:
    """The questions as Flower's records. A global model is one record for all who train from it:
    a house gets it once."""
    plain = {index: one.plain() for index, one in questions.items()}
    records: dict[tuple[int, ...], ArrayRecord] = {}
    contents = {}
    for index, (config, arrays) in plain.items():
        same = tuple(map(id, arrays.values()))
        if same not in records:
            records[same] = array_record(arrays)
        named = {**config, "protocol": PROTOCOL}
        contents[index] = content((named, arrays), records[same])
    return contents
