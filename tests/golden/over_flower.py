"""A scenario over a grid in this process: the same record, the uploads and all messages.

What it needs from inside the package comes through ``grid_of`` and ``hold`` of the tests of Flower.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, Message, RecordDict
from tests.flower.market_common import grid_of, hold
from tests.golden.recording import SCENARIOS, Placeholders, made_on, record, sha256, write_pictures

import noisemarket as nm

TRAIN = "train"
MOST_LISTED = 32
"""Numbers of an array that are listed; of a longer one there is the digest."""


def run(name: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a scenario: what it came to with every upload, and what was said."""
    pictures = write_pictures(folder / "pictures")
    scenario = nm.load_scenario(SCENARIOS / f"{name}.toml", settings={"data": str(pictures)})
    job = folder / "job"
    job.mkdir()
    grid = grid_of(scenario, job)
    hold(grid, scenario, job, simulated=True)
    uploads = [_upload(one) for one in grid.heard if one.metadata.message_type == TRAIN]
    names = {number: node.name for number, node in grid.nodes.items()}
    messages = _said(grid.sent, grid.heard, names)
    said = Placeholders().replace(messages)
    return {**record(job), "uploads": uploads}, {"made_on": made_on(), "messages": said}


def _upload(reply: Message) -> str:
    (array,) = (one for record in reply.content.array_records.values() for one in record.values())
    return sha256(array.numpy())


def _said(
    sent: Iterable[Message], heard: Iterable[Message], names: dict[int, str]
) -> list[list[Any]]:
    """Kind, owner, question and answer, in the order of the questions."""
    answers = {one.metadata.reply_to_message_id: one for one in heard}
    found = []
    for question in sent:
        about, answer = question.metadata, answers[question.metadata.message_id]
        reply = _content(answer.content) if answer.has_content() else str(answer.error)
        row = [about.message_type, names[about.dst_node_id], _content(question.content), reply]
        found.append(row)
    return found


def _content(content: RecordDict) -> dict[str, Any]:
    return {
        name: {key: _value(one) for key, one in sorted(record.items())}
        for name, record in sorted(content.items())
    }


def _value(value: Any) -> Any:
    """Arrays as numbers or digests, texts of JSON as what they say, others as they are."""
    if isinstance(value, Array):
        array: np.ndarray = value.numpy()
        return array.tolist() if array.size <= MOST_LISTED else sha256(array)
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str) and value.startswith("{"):
        return json.loads(value)
    return value
