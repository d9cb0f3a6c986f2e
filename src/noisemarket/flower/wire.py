"""The market's messages: what is in each, written by one side and read with care by the other.

    query.key      nothing                        the owner's public key
    query.letter   invitation, a sheet            a reply
    query.offer    a contract, a plan             the owner's signature
    query.keep     a contract, both signatures    that it is kept
    query.settled  paid, ledger head, a seal      that it is kept

``train`` is in ``engine`` and ``client``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.flower.api import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from noisemarket.flower.owner import Refused
from noisemarket.flower.played import Invitation
from noisemarket.learning.messages import OfferBatch, QuoteBatch
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract

KEY, LETTER, OFFER = "query.key", "query.letter", "query.offer"
KEEP, SETTLED = "query.keep", "query.settled"

_LARGEST = 10_000_000  # numbers in a letter


def config_of(message: Message | None) -> Mapping[str, Any]:
    """The settings in a message; none if there are none."""
    config = None if message is None else message.content.get("config")
    return config if isinstance(config, ConfigRecord) else {}


def with_config(**values: Any) -> RecordDict:
    """A message that holds settings only."""
    return RecordDict({"config": ConfigRecord(values)})


def letter(invitation: Invitation, sheet: QuoteBatch) -> RecordDict:
    """A sheet, and the game that it belongs to."""
    return RecordDict(
        {
            "config": ConfigRecord({"invitation": invitation.to_json(), "first": sheet.first}),
            "arrays": _moves(quotes=sheet.quotes, signs=sheet.signs),
        }
    )


def read_letter(message: Message) -> tuple[Invitation, QuoteBatch]:
    """What a curator's letter says."""
    config = config_of(message)
    quotes, signs = _read(message, "quotes", 2), _read(message, "signs", 2)
    invitation, first = config.get("invitation"), config.get("first")
    if not isinstance(invitation, str) or type(first) is not int or first < 0:
        raise Refused("the letter cannot be read")
    if quotes is None or signs is None or quotes.shape != signs.shape or not len(quotes):
        raise Refused("the letter cannot be read")
    return Invitation.from_json(invitation), QuoteBatch(first, quotes, signs.astype(bool))


def reply(made: OfferBatch) -> RecordDict:
    """An owner's reply."""
    return RecordDict(
        {
            "config": ConfigRecord({"first": made.first}),
            "arrays": _moves(offers=made.offers, signed=made.signed),
        }
    )


def read_reply(message: Message | None) -> OfferBatch | None:
    """What an owner's reply says; None if it cannot be read."""
    if message is None:
        return None
    first = config_of(message).get("first")
    offers, signed = _read(message, "offers", 1), _read(message, "signed", 1)
    if type(first) is not int or offers is None or signed is None or offers.shape != signed.shape:
        return None
    return OfferBatch(first, offers, signed.astype(bool))


def offer(contract: Contract, plan: Mapping[str, Any]) -> RecordDict:
    """A contract, and what the owner needs to do its work."""
    return with_config(contract=contract.bytes(), plan=json.dumps(plan, sort_keys=True))


def read_offer(message: Message) -> tuple[Contract, dict[str, Any]]:
    """What is offered."""
    plan = config_of(message).get("plan")
    try:
        read = json.loads(plan) if isinstance(plan, str) else None
    except ValueError:
        read = None
    if not isinstance(read, dict) or not (
        type(read.get("index")) is int
        and type(read.get("seed")) is int
        and isinstance(read.get("model"), dict)
        and set(read) == {"index", "seed", "model"}
        and min(read["index"], read["seed"]) >= 0
    ):
        raise Refused("the offer cannot be read")
    return _contract(message), read


def signed(made: SignedContract) -> RecordDict:
    """A contract with both signatures."""
    return with_config(
        contract=made.contract.bytes(), owner=made.owner_signature, curator=made.curator_signature
    )


def read_signed(message: Message) -> SignedContract:
    """A contract with both signatures, none of them believed yet."""
    config = config_of(message)
    owner, curator = config.get("owner"), config.get("curator")
    if not isinstance(owner, str) or not isinstance(curator, str):
        raise Refused("the signatures cannot be read")
    return SignedContract(_contract(message), owner, curator)


def settled(job: str, paid: int | None, head: str, seal: str) -> RecordDict:
    """What is paid, if anything, where it stands on the ledger, and the curator's seal on it."""
    return with_config(job=job, paid=-1 if paid is None else paid, head=head, seal=seal)


def read_settled(message: Message) -> tuple[str, int | None, str, str]:
    """Job, payment, head and seal, none of them believed yet."""
    said = config_of(message)
    job, paid, head, seal = (said.get(name) for name in ("job", "paid", "head", "seal"))
    if not (isinstance(job, str) and isinstance(head, str) and isinstance(seal, str)):
        raise Refused("the message cannot be read")
    if type(paid) is not int or len(head) > 100:
        raise Refused("the message cannot be read")
    return job, None if paid < 0 else paid, head, seal


def text_of(message: Message | None, name: str) -> str | None:
    """A text out of a message; None if there is none."""
    value = config_of(message).get(name)
    return value if isinstance(value, str) else None


def _contract(message: Message) -> Contract:
    document = config_of(message).get("contract")
    if not isinstance(document, bytes):
        raise Refused("the contract cannot be read")
    try:
        return Contract.from_bytes(document)
    except BadInput:
        raise Refused("the contract cannot be read") from None


def _moves(**arrays: NDArray[Any]) -> ArrayRecord:
    """Level numbers in as few bytes as they need."""
    out = {}
    for name, values in arrays.items():
        largest = int(values.max(initial=0))
        out[name] = Array(np.ascontiguousarray(values, np.min_scalar_type(largest)))
    return ArrayRecord(out)


def _read(message: Message, name: str, dimensions: int) -> NDArray[np.int64] | None:
    """Level numbers; None if they are none. Whatever the bytes do to the reader, it is no more."""
    arrays = message.content.get("arrays")
    if not isinstance(arrays, ArrayRecord) or name not in arrays:
        return None
    try:
        values = arrays[name].numpy()
    except Exception:
        return None
    if values.ndim != dimensions or values.size > _LARGEST or values.dtype.kind not in "u":
        return None
    return values.astype(np.int64)
