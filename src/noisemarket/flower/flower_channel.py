"""The channel over Flower: a question to an owner is a message to its SuperNode.

``owner_messages`` says what is in a message. Owners that are away, too late, that decline or answer
what cannot be read do not stop the others.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from noisemarket.errors import BadInput, NoisemarketError, printable
from noisemarket.federated.engine import Job, Score, Weights, score_of
from noisemarket.files import digest, write_json
from noisemarket.flower.records import (
    HELLO,
    apart,
    array_record,
    config_of,
    content,
    plain_of,
    read_houses,
    refusal,
    together,
)
from noisemarket.market.channel import Channel
from noisemarket.market.orders import Order
from noisemarket.market.run_folder import JOURNAL, MarketFolder
from noisemarket.owner.folder import Declined
from noisemarket.owner.owner_messages import PROTOCOL, Question, Refused, Reply

if TYPE_CHECKING:
    from flwr.serverapp import Grid

TRAFFIC = "traffic.json"
_SHORTEST, _LONGEST, _OF_WAIT = 0.1, 0.5, 0.05
"""Answers are looked for after a twentieth of the time they have taken so far, within bounds: a
look costs the SuperLink more than the ServerApp."""

_DEAD_WORKER = ("ActorDiedError", "ActorUnavailableError", "RayActorError", "WorkerCrashedError")


class WorkersDied(NoisemarketError):
    """A worker of Flower's simulation died. Flower would go on asking it, in vain."""

    again = True


@dataclass(frozen=True)
class Traffic:
    """What an exchange of messages took. Bytes are those of the records, without envelopes."""

    kind: str
    sent: int
    answered: int
    bytes_out: int
    bytes_in: int
    seconds: float


@dataclass(frozen=True)
class Bounds:
    """How long owners are waited for, and how many are asked at a time.

    Args:
        timeout: the longest that an owner may take to answer, in seconds.
        wait: how long to wait for owners that are away: for each of them before it has signed,
            else it is left out; later for one.
        insecure: whether nodes without a registered name are asked who they are, and believed.
        at_once: how many owners are asked at a time (0: all), the next one when one has answered
            or its time is over: where all share a machine, each of them takes memory while it is
            at work.
        simulated: whether all owners are workers of Flower's simulation on the curator's machine,
            so that reports of dead workers are believed, and a node without a name has not started
            yet.
    """

    timeout: float = 600.0
    wait: float = 120.0
    insecure: bool = False
    at_once: int = 0
    simulated: bool = False

    def __post_init__(self) -> None:
        if type(self.at_once) is not int or self.at_once < 0:
            remedy = "give a whole number of owners, or 0 for all."
            raise BadInput("at-once", self.at_once, remedy)


class FlowerChannel(Channel):
    """Owners over a line to their SuperNodes, inside a ServerApp.

    A node is the owner under whose name its key was registered, or a house: the file ``houses``
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
        self._grid, self.names, self._folder = grid, list(names), folder.curator
        self.bounds = bounds or Bounds()
        self.patience, self.journal = self.bounds.wait, folder.curator / JOURNAL
        self.here = self.bounds.simulated
        self._job: Job | None = None
        self._house_file = houses
        self._houses: set[int] = set()  # nodes that serve several owners
        self.known: dict[str, int] = {}
        """Flower's number of the node of each owner that was ever seen; owners may share one."""
        self.traffic: list[Traffic] = []
        self.declined: dict[str, str] = {}
        """What each owner that declined said last."""
        self._unknown: dict[int, int] = {}  # nodes that did not say who they are: how often

    def ask(
        self, questions: Mapping[int, Question], timeout: float | None = None
    ) -> dict[int, Reply]:
        if not questions:
            return {}
        names, first = self.names, next(iter(questions.values()))
        contents = {names[index]: one for index, one in _contents(questions).items()}
        self.declined.clear()
        number = str(getattr(first, "round_number", ""))
        said = self.send(first.kind, contents, timeout=timeout, group=number)
        replies: dict[int, Reply] = {}
        for index, question in questions.items():
            if names[index] in said:
                replies[index] = _reply(question, said[names[index]])
            elif names[index] in self.declined:
                replies[index] = Refused(self.declined[names[index]])
        return replies

    @cached_property
    def _listed(self) -> Mapping[str, Sequence[str]]:
        """The owners of each house; read once the job's folder is held."""
        return read_houses(self._house_file, self.names) if self._house_file else {}

    def present(self) -> Collection[int]:
        here = self._look_round()
        return [owner for owner, name in enumerate(self.names) if name in here]

    def prepare(self, order: Order, job: str) -> Order:
        if order.job.noise != "secure":
            return order
        # Asked again from the same model, owners send the same bits. The curator knows nothing of
        # their noise, but when it is the same: this key gives releases names for its own account.
        names = digest(b"names of releases", job.encode())
        return replace(order, job=replace(order.job, noise_key=names))

    def start_training(self, job: Job) -> None:
        if len(self.names) != len(job):
            raise NoisemarketError(f"{len(job)} owners in the job, but {len(self.names)} names.")
        self._job = job

    def score(self, weights: Weights) -> Score:
        assert self._job is not None
        return score_of(self._job.model(self._job.seed), weights, self._job.data)

    def settled(self) -> None:
        write_json(self._folder / TRAFFIC, [asdict(one) for one in self.traffic])

    def send(
        self,
        kind: str,
        contents: Mapping[str, RecordDict],
        *,
        timeout: float | None = None,
        group: str = "",
    ) -> dict[str, RecordDict]:
        """Send each owner a message and collect what comes in time; a late owner does not act on
        it."""
        homes: dict[int, list[str]] = {}
        for name in contents:
            if name in self.known:
                homes.setdefault(self.known[name], []).append(name)
        asked = {
            number: together({name: contents[name] for name in names})
            if number in self._houses
            else contents[names[0]]
            for number, names in homes.items()
        }
        longest = min(self.bounds.timeout, math.inf if timeout is None else timeout)
        answers: dict[str, RecordDict] = {}
        for number, reply in self._exchange(kind, asked, longest, group).items():
            if number not in self._houses:
                answers[homes[number][0]] = reply
                continue
            with contextlib.suppress(Declined):
                parts = apart(reply) or {}
                for name in [one for one in homes[number] if one in parts]:
                    if (why := refusal(parts[name])) is None:
                        answers[name] = parts[name]
                    else:
                        self._note_refusal(kind, name, why)
        return answers

    def _exchange(
        self, kind: str, contents: Mapping[int, RecordDict], timeout: float, group: str = ""
    ) -> dict[int, RecordDict]:
        if not contents:
            return {}
        start = time.monotonic()
        left = list(contents.items())
        waiting: dict[str, tuple[int, float]] = {}  # messages out: to whom, and since when
        answers: dict[int, RecordDict] = {}
        while left or waiting:
            room = max(0, (self.bounds.at_once or len(contents)) - len(waiting))
            going, left = left[:room], left[room:]
            now = time.monotonic()
            messages = [Message(one, to, kind, ttl=timeout, group_id=group) for to, one in going]
            pushed = self._grid.push_messages(messages) if going else []
            sent_to = zip(pushed, going, strict=False)
            waiting |= {name: (to, now) for name, (to, _) in sent_to if name}
            now = time.monotonic()
            late = [name for name, (_, sent) in waiting.items() if now >= sent + timeout]
            for reply in self._grid.pull_messages(list(waiting)):  # one last look at the late
                number, _ = waiting.pop(reply.metadata.reply_to_message_id, (None, 0.0))
                if number is None:
                    continue
                if reply.has_error():
                    self._note_error(kind, number, reply.error.reason or "no reason given")
                else:
                    answers[number] = reply.content
            for name in late:
                waiting.pop(name, None)
            if waiting:
                waited = time.monotonic() - start
                time.sleep(min(_LONGEST, max(_SHORTEST, _OF_WAIT * waited)))
        took = time.monotonic() - start
        out, back = _bytes(contents.values()), _bytes(answers.values())
        self.traffic.append(Traffic(kind, len(contents), len(answers), out, back, took))
        return answers

    def _note_error(self, kind: str, number: int, reason: str) -> None:
        if self.bounds.simulated and any(name in reason for name in _DEAD_WORKER):
            raise WorkersDied("A worker of Flower's simulation died: run again to go on.")
        for name, its in self.known.items():
            if its == number:
                self._note_refusal(kind, name, reason)

    def _note_refusal(self, kind: str, name: str, reason: str) -> None:
        self.declined[name] = printable(" ".join(reason.split())[:200])
        getLogger(__name__).warning("%s: owner %s: %s", kind, name, self.declined[name])

    def _look_round(self) -> set[str]:
        """The owners whose nodes are online now. New nodes are met, also those that came back."""
        nodes = self._grid.get_nodes()
        online = {node.node_id: str(getattr(node, "name", "")) for node in nodes}
        known = set(self.known.values())
        strangers = {}
        for number, name in online.items():
            if name in self._listed:
                self._serves_several(number, self._listed[name])
            elif name in self.names:
                self.known[name] = number
            elif not name and number not in known and self._unknown.get(number, 0) < 3:
                strangers[number] = RecordDict({"config": ConfigRecord()})
        if not self.bounds.insecure:
            words = "Node %s has no name and is left alone: register it under its owner's."
            for number in strangers:
                self._unknown[number] = 3  # is not looked at again
                getLogger(__name__).warning(words, number)
            strangers = {}
        longest = self.bounds.timeout if self.bounds.simulated else min(60.0, self.bounds.timeout)
        said = self._exchange(HELLO, strangers, longest)
        for number in strangers:
            config = config_of(said.get(number, RecordDict()))
            house = config.get("owners")
            named = house if isinstance(house, list) else [config.get("owner")]
            free = [n for n in self.names if n in named and self.known.get(n) not in online]
            if not free:
                self._unknown[number] = self._unknown.get(number, 0) + 1
            elif named is house:
                self._serves_several(number, free)
            else:
                self.known[free[0]] = number
        return {name for name in self.names if self.known.get(name) in online}

    def _serves_several(self, number: int, owners: Iterable[str]) -> None:
        self._houses.add(number)
        self.known |= dict.fromkeys(owners, number)


def _bytes(contents: Iterable[RecordDict]) -> int:
    return sum(record.count_bytes() for content in contents for record in content.values())


def _reply(question: Question, said: RecordDict) -> Reply:
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
