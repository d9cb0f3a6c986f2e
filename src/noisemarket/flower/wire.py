"""The market's messages: what is in each, written by one side and read with care by the other.

query.hello     nothing                        the owner's name
query.key       nothing                        the owner's public key
query.quotes    an invitation, quotes          proposals
query.price     an invitation, a price         whether the owner stays
query.contract  a contract, an assignment      the owner's signature
query.signed    a contract, both signatures,   the receipt, signed by the owner
                and a receipt
train           job, round, sigma, the model   an update
query.settled   a receipt of what is paid      the receipt, signed by the owner
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.flower.house import Part
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.receipts import Receipt
from noisemarket.owner.folder import Declined
from noisemarket.owner.record import ClockInvitation, Invitation
from noisemarket.owner.terms import Assignment
from noisemarket.pricing.messages import ProposalBatch, QuoteBatch

HELLO, KEY, QUOTES, CONTRACT = "query.hello", "query.key", "query.quotes", "query.contract"
PRICE, SIGNED, TRAIN, SETTLED = "query.price", "query.signed", "train", "query.settled"
WEIGHTS = "weights"

PROTOCOL = 3
"""Which messages these are. It grows when an owner or a curator of before could not read them."""

Said = Message | Part
"""A message to or from one owner, or its part of one for a house."""

_LARGEST = 10_000_000  # numbers in a message of the game


def config_of(message: Said | None) -> Mapping[str, Any]:
    """The settings in a message; none if there are none."""
    config = None if message is None else message.content.get("config")
    return config if isinstance(config, ConfigRecord) else {}


def message_text(message: Said | None, name: str) -> str | None:
    """A text out of a message; None if there is none."""
    value = config_of(message).get(name)
    return value if isinstance(value, str) else None


def array_of(message: Said, name: str) -> NDArray[Any] | None:
    """An array out of a message; None if there is none that can be read."""
    arrays = message.content.get("arrays")
    if not isinstance(arrays, ArrayRecord) or name not in arrays:
        return None
    try:
        return arrays[name].numpy()
    except Exception:  # whatever the bytes do to the reader, it is the sender's loss
        return None


def with_protocol(content: RecordDict) -> RecordDict:
    """A content that says of which protocol it is."""
    if isinstance(config := content.get("config"), ConfigRecord):
        config["protocol"] = PROTOCOL
    return content


def check_protocol(message: Said) -> None:
    """Decline what is of another protocol. What names none, such as an app of one's own, passes."""
    theirs = config_of(message).get("protocol", PROTOCOL)
    if theirs != PROTOCOL:
        said = theirs if isinstance(theirs, int) else "another"
        raise Declined(
            f"the curator speaks protocol {said}, this owner {PROTOCOL}: install its noisemarket"
        )


def with_config(**values: Any) -> RecordDict:
    """A message that holds settings only."""
    return RecordDict({"config": ConfigRecord(values)})


def quotes(invitation: Invitation, batch: QuoteBatch) -> RecordDict:
    """A curator's quotes, and the game that they belong to."""
    config = ConfigRecord({"invitation": invitation.to_json(), "first": batch.first})
    return RecordDict({"config": config, "arrays": _moves(quotes=batch.quotes, signs=batch.signs)})


def read_quotes(message: Said) -> tuple[Invitation, QuoteBatch]:
    """A curator's quotes, and the game that they belong to."""
    drawn, signs = _levels(message, "quotes", 2), _levels(message, "signs", 2)
    invitation, first = message_text(message, "invitation"), config_of(message).get("first")
    if invitation is None or type(first) is not int or first < 0:
        raise Declined("the quotes cannot be read")
    if drawn is None or signs is None or drawn.shape != signs.shape or not len(drawn):
        raise Declined("the quotes cannot be read")
    return Invitation.from_json(invitation), QuoteBatch(first, drawn, signs.astype(bool))


def proposals(batch: ProposalBatch) -> RecordDict:
    """An owner's proposals."""
    arrays = _moves(proposals=batch.proposals, signed=batch.signed)
    return RecordDict({"config": ConfigRecord({"first": batch.first}), "arrays": arrays})


def read_proposals(message: Said) -> ProposalBatch | None:
    """An owner's proposals; None if they cannot be read."""
    first = config_of(message).get("first")
    savings, both = _levels(message, "proposals", 1), _levels(message, "signed", 1)
    if type(first) is not int or savings is None or both is None or savings.shape != both.shape:
        return None
    return ProposalBatch(first, savings, both.astype(bool))


def price(invitation: ClockInvitation, payment: int) -> RecordDict:
    """A price of a clock auction, as a payment level, and the clock that it belongs to."""
    return with_config(invitation=invitation.to_json(), price=payment)


def read_price(message: Said) -> tuple[ClockInvitation, int]:
    """A price of a clock auction, and the clock that it belongs to."""
    invitation, payment = message_text(message, "invitation"), config_of(message).get("price")
    if invitation is None or type(payment) is not int:
        raise Declined("the price cannot be read")
    return ClockInvitation.from_json(invitation), payment


def contract(draft: Contract, assignment: Assignment) -> RecordDict:
    """A contract to be signed, and what the owner needs to do its work."""
    plan = json.dumps(asdict(assignment), sort_keys=True)
    return with_config(contract=draft.bytes(), plan=plan)


def read_contract(message: Said) -> tuple[Contract, Assignment]:
    """A contract to be signed, and what the owner needs to do its work."""
    try:
        assignment = Assignment(**json.loads(message_text(message, "plan") or ""))
        numbers = assignment.index, assignment.seed
        sound = all(type(one) is int and one >= 0 for one in numbers)
        sound = sound and isinstance(assignment.model, dict)
    except (ValueError, TypeError):
        sound = False
    if not sound:
        raise Declined("the contract's plan cannot be read")
    return _contract(message), assignment


def signed_by_both(both: SignedContract, of: Receipt) -> RecordDict:
    """A contract with both signatures, and the curator's receipt."""
    return with_config(
        contract=both.contract.bytes(), owner=both.owner_signature, curator=both.curator_signature,
        receipt=json.dumps(of.to_dict()),
    )  # fmt: skip


def read_signed(message: Said) -> tuple[SignedContract, Receipt]:
    """A contract with both signatures, and a receipt, none of them believed yet."""
    owner, curator = message_text(message, "owner"), message_text(message, "curator")
    if owner is None or curator is None:
        raise Declined("the signatures cannot be read")
    return SignedContract(_contract(message), owner, curator), read_receipt(message)


def receipt(of: Receipt) -> RecordDict:
    """A receipt: the curator's, or an owner's answer to one."""
    return with_config(receipt=json.dumps(of.to_dict()))


def read_receipt(message: Said) -> Receipt:
    """A receipt, not believed yet."""
    found = receipt_of(message)
    if found is None:
        raise Declined("the receipt cannot be read")
    return found


def receipt_of(message: Said | None) -> Receipt | None:
    """A receipt out of a message; None if there is none."""
    try:
        return Receipt.from_json(message_text(message, "receipt") or "")
    except BadInput:
        return None


def _contract(message: Said) -> Contract:
    document = config_of(message).get("contract")
    if not isinstance(document, bytes):
        raise Declined("the contract cannot be read")
    try:
        return Contract.from_bytes(document)
    except BadInput:
        raise Declined("the contract cannot be read") from None


def _moves(**arrays: NDArray[Any]) -> ArrayRecord:
    """Level numbers in as few bytes as they need."""
    kinds = {name: np.min_scalar_type(int(one.max(initial=0))) for name, one in arrays.items()}
    return ArrayRecord(
        {name: Array(np.ascontiguousarray(one, kinds[name])) for name, one in arrays.items()}
    )


def _levels(message: Said, name: str, dimensions: int) -> NDArray[np.int64] | None:
    """Level numbers; None if they are not."""
    values = array_of(message, name)
    if values is None or values.ndim != dimensions or values.size > _LARGEST:
        return None
    return values.astype(np.int64) if values.dtype.kind == "u" else None
