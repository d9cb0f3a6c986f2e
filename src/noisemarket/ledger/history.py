"""Which entries may follow which in the history of a job.

    opened -> (offered -> signed -> delivered | missed | refused, a round once -> verified
               -> paid | broken)* -> settled

``begun`` in between, once for every round in rising order, and a seal after every batch. The same
rules refuse an invalid entry when it is recorded and find it when the ledger is verified. Closed
contracts and settled jobs are forgotten: ``verify`` checks that none is opened twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from noisemarket.errors import BadInput, BadSignature
from noisemarket.formats import infinite
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract, is_key, moment, parse
from noisemarket.ledger.entries import Entry, NewEntry, once_key, seal_holds
from noisemarket.ledger.keys import SignedContract
from noisemarket.ledger.money import UNITS, checked_amount, is_currency

_ROUNDING = 1e-9  # relative: rho is added up in another order than the accountant's


class InvalidEntry(Exception):
    """An entry that cannot follow the ones before it. The message completes "entry 7 ..."."""


class OverBudgetEntry(InvalidEntry):
    """An entry that would pass the job's budget."""


@dataclass(slots=True)
class _Open:
    """What has to be remembered of a contract until it is closed."""

    contract: Contract
    rho: float = 0.0  # of all rounds so far
    stage: str = entries.OFFERED
    seen: int = 0  # one bit a round
    delivered: int = 0
    kept: bool = False


class JobHistory:
    """The state of one job after the entries that were added so far."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.stage = ""
        self.budget = 0
        self.curator_key = ""
        self.currency = UNITS
        self.owner_keys: dict[str, str] | None = None
        self.open: dict[str, _Open] = {}
        self.signed = 0  # contracts that are signed and not closed
        self.committed = 0  # what these may cost at most
        self.paid = 0
        self.contracts = 0
        self.contracts_paid = 0
        self.contracts_broken = 0
        self.begun = 0  # the last round that was begun
        self.unsealed = 0  # entries since the last seal

    def add(
        self, entry: Entry | NewEntry, recorded_at: str, *, check_signatures: bool = True
    ) -> None:
        try:
            content = parse(entry.body)
            if not isinstance(content, dict):
                raise ValueError
        except (ValueError, TypeError):
            raise InvalidEntry("has a body that is not a canonical JSON object.") from None
        try:
            time = moment("recorded_at", recorded_at)
            self._add(entry, content, time, check_signatures)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            reason = f"does not have the fields of a {entry.kind!r} entry ({problem})."
            raise InvalidEntry(reason) from None
        except BadInput as problem:
            raise InvalidEntry(f"is invalid: {problem}") from None
        self.unsealed = 0 if entry.kind == entries.SEALED else self.unsealed + 1

    def _add(
        self,
        entry: Entry | NewEntry,
        content: dict[str, Any],
        time: datetime,
        check_signatures: bool,
    ) -> None:
        kind = entry.kind
        if kind == entries.OPENED and self.stage:
            raise InvalidEntry("opens a job a second time.")
        if kind != entries.OPENED and not self.stage:
            raise InvalidEntry("belongs to a job that was not opened, or is settled.")
        if kind != entries.SEALED and self.stage == entries.SETTLED:
            raise InvalidEntry("comes after its job was settled.")
        _check_form(entry, content)
        contract = str(entry.contract)
        if kind == entries.OPENED:
            self._opened(content)
        elif isinstance(entry, Entry) and kind == entries.SEALED:
            self._sealed(entry, content, check_signatures)
        elif kind == entries.SETTLED:
            self._settled(content)
        elif kind == entries.BEGUN:
            self._begun(content)
        elif kind == entries.OFFERED:
            self._offered(contract, content)
        elif (held := self.open.get(contract)) is None:
            raise InvalidEntry("is about a contract that was not offered, or is closed.")
        elif kind == entries.SIGNED:
            self._signed(held, content, time, check_signatures)
        elif kind == entries.VERIFIED:
            _verified(held, content)
        elif kind in entries.ROUND_KINDS:
            _round(held, kind, content)
        else:
            self._closed(held, kind, content)
            del self.open[contract]
        if entry.once != once_key(kind, entry.contract, content.get("round")):
            raise InvalidEntry("does not have the once key of its kind.")

    def _opened(self, content: dict[str, Any]) -> None:
        owner_keys, about = content["owner_keys"], content["about"]
        if owner_keys is not None and not isinstance(owner_keys, dict):
            raise InvalidEntry("has owner keys that are not a table.")
        if not is_key(content["curator_key"]):
            raise InvalidEntry("has a curator's key that is not a public key.")
        if not isinstance(about, dict) or not is_currency(about.get("currency", UNITS)):
            raise InvalidEntry("has no table about the job, or its currency is not a short word.")
        self.budget = checked_amount(content["budget"], "budget")
        self.curator_key, self.owner_keys = content["curator_key"], owner_keys
        self.currency = about.get("currency", UNITS)
        self.stage = entries.OPENED

    def _sealed(self, entry: Entry, content: dict[str, Any], check_signatures: bool) -> None:
        if not self.unsealed:
            raise InvalidEntry("seals nothing new.")
        if check_signatures and not seal_holds(entry, content["signature"], self.curator_key):
            raise InvalidEntry(
                "is not the curator's seal: an entry up to here was changed, or another key sealed."
            )

    def _begun(self, content: dict[str, Any]) -> None:
        number, owners = content["round"], content["owners"]
        if type(number) is not int or type(owners) is not int or owners < 0:
            raise InvalidEntry("does not say which round begins, for how many owners.")
        if not self.begun < number < 2**31:
            raise InvalidEntry(f"begins round {number} after round {self.begun}.")
        self.begun = number

    def _offered(self, contract: str, content: dict[str, Any]) -> None:
        document = Contract.from_dict(content["contract"])
        if document.id != contract:
            raise InvalidEntry("holds a contract other than the one that it names.")
        if document.job != self.job:
            raise InvalidEntry(f"holds a contract of another job, {document.job}.")
        if contract in self.open:
            raise InvalidEntry("offers a contract a second time.")
        if document.curator_key != self.curator_key:
            raise InvalidEntry("holds a contract with a curator's key that is not the job's.")
        keys = self.owner_keys
        if keys is not None and keys.get(document.owner) != document.owner_key:
            raise InvalidEntry("holds a contract with an owner's key that is not that owner's.")
        self.open[contract] = _Open(document)
        self.contracts += 1

    def _signed(
        self, held: _Open, content: dict[str, Any], time: datetime, check_signatures: bool
    ) -> None:
        document = held.contract
        if held.stage != entries.OFFERED:
            raise InvalidEntry("signs a contract a second time.")
        if check_signatures:
            try:
                SignedContract(document, **content).verify(document.owner_key, self.curator_key)
            except BadSignature as problem:
                raise InvalidEntry(f"has a signature that does not hold: {problem}") from None
        if time > moment("expires_at", document.expires_at):
            raise InvalidEntry(f"signs a contract that expired at {document.expires_at}.")
        if self.committed + self.paid + document.payment > self.budget:
            raise OverBudgetEntry("signs a contract that the job's budget cannot pay.")
        self.committed += document.payment
        self.signed += 1
        held.stage = entries.SIGNED

    def _closed(self, held: _Open, kind: str, content: dict[str, Any]) -> None:
        if held.stage != entries.VERIFIED:
            raise InvalidEntry(f"closes a contract that is {held.stage}, not {entries.VERIFIED}.")
        amount = 0
        if kind == entries.PAID:
            amount = checked_amount(content["amount"], "amount")
            if not held.kept:
                raise InvalidEntry("pays for a contract that was found broken.")
            if amount != (due := held.contract.owed(held.delivered)):
                raise InvalidEntry(f"pays {amount} micro-units where the contract says {due}.")
            self.contracts_paid += 1
        else:
            if held.kept:
                raise InvalidEntry("breaks a contract that was found kept.")
            self.contracts_broken += 1
        self.committed -= held.contract.payment
        self.signed -= 1
        self.paid += amount
        if self.paid > self.budget:
            raise OverBudgetEntry("pays more than the job's budget.")

    def _settled(self, content: dict[str, Any]) -> None:
        if self.signed:
            raise InvalidEntry(f"settles a job with contracts still open: {self.signed}.")
        expected = {
            "total": self.paid,
            "contracts_paid": self.contracts_paid,
            "contracts_broken": self.contracts_broken,
        }
        if content != expected:
            raise InvalidEntry("settles a job for a sum other than what was paid.")
        self.stage = entries.SETTLED
        self.open.clear()


def _round(held: _Open, kind: str, content: dict[str, Any]) -> None:
    if held.stage != entries.SIGNED:
        raise InvalidEntry(f"has a round of a contract that is {held.stage}, not {entries.SIGNED}.")
    number, rounds, agreed = content["round"], held.contract.rounds, held.contract.rho_per_round
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidEntry("has a round that is not a whole number.")
    if not 1 <= number <= rounds:
        raise InvalidEntry(f"has round {number} of a contract of {rounds} rounds.")
    rho = infinite(content["rho"])
    if not rho >= 0.0:
        raise InvalidEntry("has a negative rho.")
    if kind != entries.MISSED and rho < agreed * (1.0 - _ROUNDING):
        raise InvalidEntry(f"has rho {rho:g} where the contract says {agreed:g} a round.")
    if kind in (entries.MISSED, entries.REFUSED) and not isinstance(content["reason"], str):
        raise InvalidEntry("gives no reason.")
    if held.seen >> number & 1:
        raise InvalidEntry(f"has round {number} a second time.")
    total, cap = held.rho + rho, held.contract.rho_cap
    if total > cap * (1.0 + _ROUNDING):
        raise InvalidEntry(f"takes rho to {total:g}, above the contract's cap of {cap:g}.")
    held.seen |= 1 << number
    held.rho = total
    held.delivered += kind == entries.DELIVERED


def _verified(held: _Open, content: dict[str, Any]) -> None:
    if held.stage != entries.SIGNED:
        raise InvalidEntry(f"verifies a contract that is {held.stage}, not {entries.SIGNED}.")
    if not isinstance(content["kept"], bool) or type(content["delivered"]) is not int:
        raise InvalidEntry("does not say whether the contract was kept.")
    if (said := content["delivered"]) != (came := held.delivered):
        raise InvalidEntry(f"counts {said} rounds as delivered where there are {came}.")
    held.stage, held.kept = entries.VERIFIED, content["kept"]


def _check_form(entry: Entry | NewEntry, content: dict[str, Any]) -> None:
    """Check that an entry names a contract if its kind does, and has the right fields."""
    kind, fields = entry.kind, entries.FIELDS.get(entry.kind)
    if kind not in entries.FIELDS:
        raise InvalidEntry("is of an unknown kind.")
    if kind == entries.SEALED and not isinstance(entry, Entry):
        raise InvalidEntry("is a seal that the ledger did not write itself.")
    if kind in entries.JOB_KINDS and entry.contract is not None:
        raise InvalidEntry("is about a whole job and names a contract.")
    if kind not in entries.JOB_KINDS and not isinstance(entry.contract, str):
        raise InvalidEntry("names no contract.")
    if fields is not None and set(content) != fields:
        raise InvalidEntry(f"does not have exactly the fields: {', '.join(sorted(fields))}.")
