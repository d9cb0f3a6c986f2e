"""Every message of the channel, changed at random: it is read or declined, and nothing fails.

``NOISEMARKET_FUZZ`` is the number of messages in each direction, by default 200.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.conformance.channel_suite import begin
from tests.ledger.common import contract, key

from noisemarket.federated.rounds import screen
from noisemarket.ledger.contract import is_key
from noisemarket.ledger.entries import Head
from noisemarket.ledger.keys import OWNER, SignedContract, holds
from noisemarket.ledger.receipts import Receipt, UploadReceipt, upload_digest
from noisemarket.market.channel import LocalChannel
from noisemarket.market.orders import prepare
from noisemarket.market.run_folder import MarketFolder
from noisemarket.market.training import SerialEngine
from noisemarket.owner import owner_messages as messages
from noisemarket.owner.agent import OwnerAgent, public_reply
from noisemarket.owner.folder import Declined, OwnerFolder

pytestmark = pytest.mark.training

CASES = int(os.environ.get("NOISEMARKET_FUZZ", "200"))
FUZZED = settings(
    max_examples=CASES, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
PRIVATE = {"privacy_cost": 0.6, "markup": 0.1, "payment_value": 0.08, "privacy_weight": 2.5}
SIZE = 20

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)
VALUE = st.one_of(
    JSON, st.binary(max_size=20), st.integers(-(2**70), 2**70), JSON.map(json.dumps),
    st.sampled_from(["", "0" * 64, "0" * 128, "{}", "[]", "null", "1e999", "[" * 5000, "\0"]),
)  # fmt: skip
ARRAY = st.one_of(
    st.sampled_from([
        np.array("text"), np.array(["a", "b"]), np.zeros((0, 3)), np.zeros(SIZE, complex),
        np.array(7), np.zeros(SIZE, [("x", "i4")]), np.array(["2020"], "datetime64[D]"),
        np.full(SIZE, np.nan, np.float32), np.full(SIZE, 2**63, np.uint64), np.ones((3, 3), bool),
        np.array([-1, 5]), np.zeros(SIZE, ">f4"), np.zeros(SIZE, np.float16),
    ]),
    st.lists(st.integers(0, 2**64 - 1), max_size=5).map(lambda some: np.array(some, np.uint64)),
)  # fmt: skip


def changed_inside(data: st.DataObject, value: Any) -> Any:
    """The same JSON with another value somewhere, or without one."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(value)))
        if data.draw(st.integers(0, 5)) == 0:
            return {other: one for other, one in value.items() if other != name}
        return {**value, name: changed_inside(data, value[name])}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], changed_inside(data, value[at]), *value[at + 1 :]]
    return data.draw(JSON)


def spoilt(data: st.DataObject, plain: messages.Plain) -> messages.Plain:
    """A message with a setting or an array changed, left out or added."""
    config, arrays = dict(plain[0]), dict(plain[1])
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from([*config, *arrays, "more"]))
        if data.draw(st.integers(0, 7)) == 0:
            config.pop(name, None)
            arrays.pop(name, None)
        elif name in arrays:
            arrays[name] = data.draw(ARRAY)
        elif isinstance(config.get(name), str | bytes) and data.draw(st.booleans()):
            kind = type(config[name])
            try:
                text = json.dumps(changed_inside(data, json.loads(config[name])))
            except (ValueError, RecursionError):
                text = config[name][: data.draw(st.integers(0, 20))]
            config[name] = text.encode() if kind is bytes and isinstance(text, str) else text
        else:
            config[name] = data.draw(VALUE)
    return config, arrays


Said = list[messages.Message]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Said, Said]:
    """Questions and replies of every kind, as they are said in a market."""
    questions: Said = []
    replies: Said = []
    for mechanism in ("dypp", "clock", "pac_auction", "pain_fl"):
        folder = tmp_path_factory.mktemp(mechanism) / "run"

        def open_channel(scenario: Any, folder: Path) -> LocalChannel:
            channel = LocalChannel(prepare(scenario), MarketFolder(folder), SerialEngine)
            honest = channel.ask

            def ask(asked: Mapping[int, messages.Question], timeout: float | None = None) -> Any:
                answered = honest(asked, timeout)
                questions.extend([*asked.values()][:1])
                replies.extend([*answered.values()][:1])
                return answered

            channel.ask = ask  # type: ignore[method-assign]
            return channel

        more = {"iterations": 40, "window": 20} if mechanism == "dypp" else {}
        one = begin(open_channel, folder, mechanism=mechanism, **more)
        one.contracts()
        one.owners.keys(one.invitation)
    made, curator = contract("anna", "job-1"), key("curator")
    receipt = Receipt.of(curator, made, "signed", Head(7, "7" * 64))
    upload = np.zeros(SIZE, np.float32)
    last = UploadReceipt.of(curator, made.id, 2, 1, upload_digest(upload))
    questions += [
        messages.ContractOffer(made, {"index": 0, "seed": 1, "model": {"kind": "linear",
                               "classes": 2, "dimension": 10}}),
        messages.ContractSigned(SignedContract(made, "0" * 128, "1" * 128), receipt),
        messages.Train("job-1", 2, 0.3, upload, last),
        messages.JobSettled(receipt, last),
    ]  # fmt: skip
    replies += [
        messages.Signature("0" * 128), messages.Countersigned(receipt), messages.Update(upload),
    ]  # fmt: skip
    kinds = {type(one) for one in questions}
    assert kinds == set(messages.QUESTIONS.values())
    assert {one.reply for one in messages.QUESTIONS.values()} == {type(one) for one in replies}
    return questions, replies


def read(kind: type[messages.Message], plain: messages.Plain) -> messages.Message | None:
    try:
        return kind.read(*plain)
    except Declined:
        return None


def test_an_owner_answers_or_declines_whatever_it_is_asked(
    said: tuple[Said, Said], tmp_path: Path
) -> None:
    """It fails at nothing: a failure would be told, and might depend on a record."""
    folder = OwnerFolder("anna", tmp_path / "anna")
    folder.keep_records(np.full((30, 10), 0.1, np.float32), np.arange(30) % 2)
    folder.keep_private(PRIVATE)
    config = {"rho-cap": 50.0, "allow-simulated": True, "most-unsigned": 10**9}
    agent, read_again = OwnerAgent(folder, config), list[type]()

    @FUZZED
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        question = data.draw(st.sampled_from(said[0]))
        found = read(type(question), spoilt(data, question.plain()))
        if found is not None:
            assert isinstance(found, messages.Question)
            reply = public_reply(partial(agent.handle, found))
            assert not (isinstance(reply, messages.Refused) and reply.failed), found
            read_again.append(type(found))

    ask()
    assert len(set(read_again)) > 3, "the test shows nothing"


USES: dict[type[messages.Message], Callable[[Any], object]] = {
    messages.PublicKey: lambda one: is_key(one.key),
    messages.Signature: lambda one: holds(OWNER, contract("anna"), one.signature),
    messages.Update: lambda one: (screen({0: one.weights}, SIZE), upload_digest(one.weights)),
    messages.Countersigned: lambda one: one.receipt.signed_by("0" * 64),
}
"""What a curator does with a reply before it believes it."""


def test_a_curator_reads_or_refuses_whatever_it_is_answered(said: tuple[Said, Said]) -> None:
    @FUZZED
    @given(st.data())
    def answer(data: st.DataObject) -> None:
        reply = data.draw(st.sampled_from(said[1]))
        found = read(type(reply), spoilt(data, reply.plain()))
        if found is not None:
            USES.get(type(found), str)(found)

    answer()
