"""Flower's strategy for owners under contract, for an app and a model of one's own.

Owners train under ``client_mod.contract_mod``; contracts are on the ledger (``market.offers``).
Here, in the ServerApp, their uploads are screened and checked for the contracted noise, the good
ones averaged, every round recorded, and at the end each contract is verified and paid or broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.aggregation import aggregate
from noisemarket.federated.engine import Score, Weights
from noisemarket.federated.protections import PROTECTIONS, Upload
from noisemarket.federated.rounds import Checkpoint, RoundResult, State, screen
from noisemarket.files import digest
from noisemarket.flower.client_mod import FloatVector, numbers, record_of
from noisemarket.flower.line import Bounds, Line
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.queries import documents, signatures
from noisemarket.ledger.settlement import Settlement, settle
from noisemarket.ledger.store import Ledger
from noisemarket.market.inspection import UploadInspector
from noisemarket.market.verdicts import entries_of_round, verdicts

CHECKPOINT = "checkpoint.npz"
NOT_TESTED = Score(math.nan, math.nan)
"""The score of a round here: it is Flower that tests the global model, by ``evaluate_fn``."""

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class ContractedFedAvg(Strategy):
    """Federated averaging of owners under contract: the signed contracts of a ``job`` on a ledger.

    A round asks every contracted owner that is there and was not found in breach. Owners count
    alike, or by ``shares``: what they say about themselves counts for nothing. ``rate`` multiplies
    the mean update. ``folder`` keeps a checkpoint after each round: started again on it, a job goes
    on where it stopped. ``wait`` is how long to wait for owners: before the first round for all,
    later for one. ``insecure`` believes nodes without a name (see ``line``).

    Owners evaluate nothing, because nothing would account for their answers: test the global model
    with Flower's ``evaluate_fn``.
    """

    def __init__(
        self,
        ledger: Ledger,
        job: str,
        folder: str | Path,
        *,
        shares: Mapping[str, float] | None = None,
        rate: float = 1.0,
        wait: float = 120.0,
        insecure: bool = False,
        arrays: str = "arrays",
    ) -> None:
        signed = signatures(ledger, job)
        found = [contract for contract in documents(ledger, job) if contract.id in signed]
        self.contracts: dict[int, Contract] = dict(enumerate(found))
        """The job's contracts, by the owners' indices."""
        self.rounds = _rounds(job, found)
        self.settlement: Settlement | None = None
        """What was paid, once the job is over."""
        self._ledger, self._job, self._rate, self._wait = ledger, job, rate, wait
        self._names = [contract.owner for contract in found]
        self._shares = _shares(shares, self._names)
        self._arrays, self._insecure = arrays, insecure
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        fingerprint = digest(job.encode(), *(contract.id.encode() for contract in found)).hex()
        self._checkpoint = Checkpoint(folder / CHECKPOINT, fingerprint)
        self._running: _Running | None = None

    # What a Flower user calls

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Train for the contracted rounds, and settle.

        Rounds that were finished before are not trained again.
        """
        if num_rounds not in (None, self.rounds):
            raise BadInput("num_rounds", num_rounds, f"the contracts are for {self.rounds} rounds.")
        self._running = self._begin(grid, initial_arrays, float(timeout))
        result = super().start(
            grid, initial_arrays, self.rounds, timeout, train_config, evaluate_config, evaluate_fn
        )
        rounds = ((done.delivered, done.refused) for done in self._running.state.results)
        found = verdicts(self.contracts, rounds, self._running.inspector)
        self.settlement = settle(self._ledger, self._job, found)
        return result

    def summary(self) -> None:
        """Say what this is."""
        words = "Job %s: %d owners under contract, %d rounds."
        getLogger("flwr").info(words, self._job, len(self._names), self.rounds)

    # What Flower calls

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A message to every owner that may take part and is there, with its own sigma."""
        at, messages = self._at_work, []
        at.asked = {}
        if server_round <= at.state.rounds_done:
            return []
        for index in self._present(at, server_round):
            contract = self.contracts[index]
            number = at.line.known[contract.owner]
            record = ConfigRecord(dict(config))
            record["server-round"], record["job"] = server_round, self._job
            record["sigma"] = contract.sigma
            content = RecordDict({self._arrays: arrays, "config": record})
            wait, group = at.line.bounds.timeout, str(server_round)
            messages.append(Message(content, number, "train", ttl=wait, group_id=group))
            at.asked[number] = index
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Screen, check, average and record what came."""
        at = self._at_work
        model, weights = at.model, at.state.weights
        if server_round <= at.state.rounds_done:
            return record_of(model.arrays(weights)), None
        uploads: dict[int, Upload | None] = dict.fromkeys(at.asked.values())
        for reply in replies:
            index = at.asked.get(reply.metadata.src_node_id)
            if index is not None and uploads[index] is None:
                uploads[index] = _update(model, reply, self._arrays, weights)
        good, screened = screen(uploads, weights.size)
        refused = dict(screened) | at.inspector.inspect(
            server_round, {p: self._exact(p, good[p], at) for p in good}
        )
        good = {index: upload for index, upload in good.items() if index not in refused}
        moved = model.arrays(aggregate(weights, good, self._shares, rate=self._rate))
        weights = model.vector(moved)
        done = RoundResult(
            server_round, NOT_TESTED, None, 0.0, len(good), tuple(sorted(refused.items())),
            tuple(sorted(good)),
        )  # fmt: skip
        results, seen = [*at.state.results, done], at.inspector.state()
        at.state = State(weights, weights, results, self._job, seen, kept=at.inspector.arrays())
        self._checkpoint.save(at.state)
        self._record(done)
        return record_of(moved), MetricRecord({"owners": len(good), "refused": len(refused)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody is asked."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """There is nothing."""
        return None

    # A job

    @property
    def _at_work(self) -> _Running:
        if self._running is None:
            raise NoisemarketError("The strategy has not begun: call its start.")
        return self._running

    def _begin(self, grid: Grid, arrays: ArrayRecord, timeout: float) -> _Running:
        """Take up the job where it stands, on disk and on the ledger."""
        model = FloatVector(numbers(arrays), "initial_arrays")
        first, state = model.vector(numbers(arrays)), self._checkpoint.load()
        if state is None:
            state = State.first(first, self._job)
        if state.weights.shape != first.shape:
            raise BadInput("initial_arrays", first.size, "is not the model of this job's folder.")
        for done in state.results:
            self._record(done)
        alarm = min(contract.false_alarm for contract in self.contracts.values())
        inspector = UploadInspector(
            self.contracts, alarm, self.rounds, first.size, self._accuse, state.inspector,
            arrays=state.kept,
        )  # fmt: skip
        bounds = Bounds(timeout, insecure=self._insecure)
        return _Running(model, state, inspector, Line(grid, self._names, bounds))

    def _present(self, at: _Running, number: int) -> list[int]:
        """Who may take part and is there."""
        may = set(at.inspector.present())
        if not may:
            return []
        least = 1 if at.line.known else None
        here = [index for index in at.line.meet(self._wait, at_least=least) if index in may]
        if not here:
            raise NoisemarketError(f"No owner is here for round {number}: run again later.")
        return here

    def _exact(self, index: int, upload: Upload, at: _Running) -> Upload:
        """An upload as the inspector is to see it. One without noise may be as long as the clip to
        the last bit, and must not be blamed for how the model's own numbers are rounded."""
        if self.contracts[index].sigma > 0.0:
            return upload
        length = float(np.linalg.norm(upload.astype(np.float64)))
        finest = max(np.finfo(one.dtype).eps for one in at.model.floats.values())
        rounding = float(finest) * float(np.linalg.norm(at.state.weights + upload))
        return upload * np.float32(max(0.0, 1.0 - rounding / length)) if length else upload

    def _accuse(self, index: int, number: int, reason: str, evidence: dict[str, Any]) -> None:
        owner = self._names[index]
        getLogger("flwr").info("Owner %s, round %d: %s; refused.", owner, number, reason)

    def _record(self, done: RoundResult) -> None:
        """Put a round on the ledger. Who was asked for it has paid for it."""
        costs = {index: self.contracts[index].rho_per_round for index in done.charged}
        lines = entries_of_round(self.contracts, done.number, done.delivered, done.refused, costs)
        self._ledger.append(lines)


@dataclass
class _Running:
    """A job while it runs. ``asked`` are the owners, by node, that were asked in this round."""

    model: FloatVector
    state: State
    inspector: UploadInspector
    line: Line
    asked: dict[int, int] = field(default_factory=dict)


def _update(model: FloatVector, reply: Message, key: str, weights: Weights) -> Upload | None:
    """By what a reply would move the model; None if there is nothing that can be read.

    A reply with another model is an empty update, which is refused.
    """
    record = None if reply.has_error() else reply.content.get(key)
    if not isinstance(record, ArrayRecord):
        return None
    try:
        values = numbers(record)
    except Exception:  # whatever an owner's bytes do to the reader, it is that owner's loss
        return None
    for name, own in model.floats.items():
        given = values.get(name)
        if given is None or given.dtype.kind != "f" or given.shape != own.shape:
            return np.empty(0, np.float32)
    return (model.vector(values) - weights).astype(np.float32)


def _rounds(job: str, contracts: Sequence[Contract]) -> int:
    """The rounds of a job, if its contracts are such as this strategy can hold owners to."""
    if not contracts:
        raise BadInput("job", job, "has no signed contract on this ledger.")
    for contract in contracts:
        if not PROTECTIONS.find(contract.protection).any_training:
            remedy = "needs its own training: draw the contracts up for clipped."
            raise BadInput("protection", contract.protection, remedy)
    rounds = {contract.rounds for contract in contracts}
    if len(rounds) > 1:
        raise BadInput("rounds", sorted(rounds), "must be the same in all contracts of a job.")
    return rounds.pop()


def _shares(shares: Mapping[str, float] | None, names: Sequence[str]) -> NDArray[np.float64]:
    if shares is None:
        return np.ones(len(names))
    try:
        given = np.array([float(shares[name]) for name in names])
    except KeyError as missing:
        raise BadInput("shares", missing.args[0], "give every owner's share.") from None
    if not (np.isfinite(given).all() and (given >= 0.0).all() and given.sum() > 0.0):
        raise BadInput("shares", list(given), "give numbers that are not negative, nor all zero.")
    return given
