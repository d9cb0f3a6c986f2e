"""The curator's dealings with the owners of a job, over whatever channel.

An owner that cannot be reached, declines or gives unusable answers before it has signed is left
out: the job goes on without it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from noisemarket.errors import BadSignature, NoisemarketError
from noisemarket.files import write_json
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.document import is_key
from noisemarket.ledger.keys import OWNER, SignedContract, holds
from noisemarket.ledger.receipts import Receipt
from noisemarket.market.channel import Channel
from noisemarket.market.orders import Order
from noisemarket.owner.invitations import (
    JobInvitation,
)
from noisemarket.owner.owner_messages import (
    ContractOffer,
    ContractSigned,
    Countersigned,
    JobSettled,
    KeyQuestion,
    PublicKey,
    Question,
    Refused,
    Reply,
    Signature,
)

LEFT_OUT, KEYS = "left-out.json", "keys.json"
TRIES = 3
"""Answers that cannot be used, from one owner to one question."""

_PAUSE = 0.5
_SETTLED_SECONDS = 60.0

Answer = TypeVar("Answer", bound=Reply)


class Owners:
    """The owners of a job. ``folder`` is the curator's, for keys and left-out owners."""

    def __init__(self, channel: Channel, names: Sequence[str], folder: Path) -> None:
        self.channel, self.names, self._folder = channel, list(names), folder
        self.left_out: dict[str, str] = {}
        """Owners that are left out, and why."""
        if (file := folder / LEFT_OUT).exists():
            self.left_out = dict(json.loads(file.read_text(encoding="utf-8")))

    def taking_part(self) -> list[int]:
        """Those that were not left out."""
        return [at for at, name in enumerate(self.names) if name not in self.left_out]

    def ask(
        self,
        questions: Mapping[int, Question],
        kind: type[Answer],
        good: Callable[[int, Answer], bool] = lambda index, reply: True,
        *,
        leave_out: bool = True,
    ) -> dict[int, Answer]:
        """Ask owners until each has given an answer that can be used; gives these.

        One that is away is asked again when it is back, for ``patience`` seconds after the others;
        one whose answers cannot be used, three times. The others are left out of the job.
        """
        left, found = dict(questions), dict[int, Answer]()
        tries, why, end = dict.fromkeys(left, 0), dict.fromkeys(left, "away"), math.inf
        while waiting := [index for index in left if tries[index] < TRIES]:
            here = self.channel.present()
            asked = {i: left[i] for i in waiting if here is None or i in here}
            for index, reply in self.channel.ask(asked).items():
                if isinstance(reply, kind) and good(index, reply):
                    found[index] = reply
                    del left[index]
                else:
                    tries[index] += 1
                    refused = isinstance(reply, Refused)
                    why[index] = reply.reason if refused else "unusable answers"  # type: ignore[attr-defined]
            end = min(end, time.monotonic() + self.channel.patience)
            if not left or time.monotonic() >= end:
                break
            time.sleep(_PAUSE)
        if leave_out and left:
            about = next(iter(left.values())).kind.removeprefix("query.")
            self.left_out |= {self.names[index]: f"{about}: {why[index]}" for index in left}
            write_json(self._folder / LEFT_OUT, self.left_out)
        return dict(sorted(found.items()))

    def keys(self, invitation: JobInvitation) -> dict[str, str]:
        """The owners' public keys, by name."""
        file = self._folder / KEYS
        if file.exists():  # the ledger has them: they cannot change
            return dict(json.loads(file.read_text(encoding="utf-8")))
        asked = dict.fromkeys(self.taking_part(), KeyQuestion(invitation))
        found = self.ask(asked, PublicKey, lambda _, reply: is_key(reply.key))
        keys = {self.names[index]: reply.key for index, reply in found.items()}
        if not self.channel.simulated:
            write_json(file, keys)
        return keys

    def sign(self, contracts: Mapping[int, Contract], order: Order) -> dict[int, str]:
        """The signatures of the owners that accept."""
        model, seed = order.job.model.settings(), order.job.seed
        asked = {
            index: ContractOffer(contract, {"index": index, "seed": seed, "model": model})
            for index, contract in contracts.items()
        }
        found = self.ask(
            asked, Signature, lambda index, reply: holds(OWNER, contracts[index], reply.signature)
        )
        return {index: reply.signature for index, reply in found.items()}

    def keep(
        self, signed: Mapping[int, SignedContract], receipts: Mapping[int, Receipt]
    ) -> dict[int, Receipt]:
        """Give the owners their contracts with both signatures, and receipts of them.

        An owner that does not get it trains nothing, and says so when it is asked to.

        Returns:
            The receipts with the owners' signatures, of those who answer. An owner that has one of
            a later state of the ledger gives that one.
        """
        asked = {index: ContractSigned(one, receipts[index]) for index, one in signed.items()}
        found = self.ask(
            asked, Countersigned, lambda i, reply: _answers(reply, receipts[i]), leave_out=False
        )
        return {index: reply.receipt for index, reply in found.items()}

    def present(self, owners: Collection[int]) -> Collection[int]:
        """Those of these owners that can be asked now; waits until there is one."""
        end = time.monotonic() + self.channel.patience
        while True:
            here = self.channel.present()
            if here is None:
                return owners
            if wanted := sorted(set(owners) & set(here)):
                return wanted
            if time.monotonic() > end:
                raise NoisemarketError("No owner is here: run again later.")
            time.sleep(_PAUSE)

    def settled(self, receipts: Mapping[int, Receipt]) -> dict[int, Receipt]:
        """Give the owners receipts of what they are paid; returns as ``keep``."""
        asked = {index: JobSettled(receipt) for index, receipt in receipts.items()}
        self.channel.present()
        replies = self.channel.ask(asked, timeout=_SETTLED_SECONDS)
        self.channel.settled()
        return {
            index: reply.receipt
            for index, reply in replies.items()
            if isinstance(reply, Countersigned) and _answers(reply, receipts[index])
        }


def _answers(reply: Countersigned, issued: Receipt) -> bool:
    """Whether a receipt is this one with the owner's signature, or one that it had before."""
    found = reply.receipt
    if (found.contract, found.owner_key) != (issued.contract, issued.owner_key):
        return False
    try:
        found.check(issued.curator_key, owner=True)
    except BadSignature:
        return False
    return True
