"""Verification: reads the whole ledger and checks everything in it.

Every hash is computed again, every signature checked, and every job's history replayed. Seals cover
every entry; that the last sealed entries were cut off, only a noted head or a receipt can tell.
Time is linear in the length of the ledger, and memory does not grow with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter

from noisemarket.errors import BadInput, LedgerBroken
from noisemarket.ledger import entries
from noisemarket.ledger.contract import is_key
from noisemarket.ledger.entries import FIRST, Entry, Head, described, entry_hash
from noisemarket.ledger.history import InvalidEntry, JobHistory
from noisemarket.ledger.receipts import Receipt
from noisemarket.ledger.store import Ledger

_MOST = 2**62  # more entries than any ledger has
_HASHED = attrgetter(*Entry.__slots__[:-1])
_SUMS = ("contracts", "contracts_paid", "contracts_broken", "paid")  # of all jobs' histories


@dataclass(frozen=True)
class VerifiedLedger:
    """What a valid ledger holds. Note ``head`` elsewhere: it pins everything up to here.

    ``paid`` adds up all jobs, ``money`` those of each currency, in micro-units.
    """

    entries: int
    head: Head
    jobs: int
    jobs_settled: int
    contracts: int
    contracts_paid: int
    contracts_broken: int
    paid: int
    money: Mapping[str, int]
    curator_keys: tuple[str, ...]


def verify(
    ledger: Ledger,
    expected_head: Head | str | None = None,
    watch: Callable[[int, int], None] | None = None,
    *,
    curator_keys: Collection[str] = (),
) -> VerifiedLedger:
    """Check every entry of a ledger; ``LedgerBroken`` names the first one that is wrong.

    ``expected_head`` was noted elsewhere, as ``count:hash`` or the hash alone: the ledger must
    still hold that entry. ``curator_keys`` were noted elsewhere: every job must be of one of them.
    ``watch`` is called with the number of entries read, and of all entries.

    Example:
        ::

            with open_ledger("runs/demo", create=False) as ledger:
                print(verify(ledger, expected_head="41:9c5f...").paid)
    """
    noted, trusted = _noted(expected_head), frozenset(map(_key, curator_keys))
    head = ledger.head()
    length, final = head.count, head.hash
    found = noted == Head(0, FIRST)
    seq, last = 0, FIRST
    tally = _Tally(trusted)
    for entry in ledger.entries(until=length):
        if entry.seq != seq + 1:
            raise LedgerBroken(seq + 1, "is missing.")
        seq += 1
        _chained(entry, last)
        last = entry.hash
        tally.add(entry)
        found = found or (noted is not None and noted.hash == last and noted.count in (seq, -1))
        if noted is not None and noted.count == seq and not found:
            raise LedgerBroken(seq, "is not the one whose hash was noted.")
        if watch is not None and seq % 5000 == 0:
            watch(seq, length)
    if seq != length:
        raise LedgerBroken(seq + 1, f"is missing: the head counts {length} entries.")
    if last != final:
        raise LedgerBroken(seq or None, "does not end in the hash that the head holds.")
    tally.finish()
    if noted is not None and not found:
        missing = "the noted hash" if noted.count < 0 else f"entry {noted.count}, which was noted"
        raise LedgerBroken(None, f"does not hold {missing}: entries were cut off or replaced.")
    _check_strays(ledger, length)
    return VerifiedLedger(
        entries=seq,
        head=Head(seq, last),
        jobs=tally.jobs,
        jobs_settled=tally.jobs_settled,
        curator_keys=tuple(tally.curator_keys),
        money=dict(tally.money),
        **tally.sums,
    )


def verify_receipt(
    ledger: Ledger,
    receipt: Receipt,
    watch: Callable[[int, int], None] | None = None,
    *,
    curator_keys: Collection[str] = (),
) -> VerifiedLedger:
    """Check every entry of a ledger, and that it holds what an owner's receipt says."""
    receipt.check(receipt.curator_key)
    if curator_keys and receipt.curator_key not in frozenset(map(_key, curator_keys)):
        raise LedgerBroken(None, f"has a receipt of another curator: {receipt.curator_key}.")
    found = verify(ledger, receipt.noted, watch, curator_keys=curator_keys)
    said = {
        entry.kind: entry
        for entry in ledger.entries(contracts=[receipt.contract], until=receipt.noted.count)
    }
    closing = said.get(entries.PAID) or said.get(entries.BROKEN)
    if entries.SIGNED not in said or (receipt.stage == entries.SETTLED and closing is None):
        reason = f"holds no such thing as the receipt of contract {receipt.contract[:12]} says."
        raise LedgerBroken(None, reason)
    paid = said[entries.PAID].content()["amount"] if entries.PAID in said else None
    if receipt.stage == entries.SETTLED and closing is not None and paid != receipt.paid:
        raise LedgerBroken(closing.seq, f"pays {paid}, and the receipt says {receipt.paid}.")
    return found


class _Tally:
    """The histories of the jobs that are open, and the sums over those that are settled."""

    def __init__(self, trusted: frozenset[str]) -> None:
        self._trusted = trusted
        self.curator_keys: dict[str, None] = {}  # in the order of their first job
        self.open: dict[str, JobHistory] = {}
        self.unsealed: dict[str, int] = {}  # the first entry of a job that no seal covers yet
        self.jobs = self.jobs_settled = 0
        self.sums = dict.fromkeys(_SUMS, 0)
        self.money = Counter[str]()

    def add(self, entry: Entry) -> None:
        history = self.open.get(entry.job) or JobHistory(entry.job)
        try:
            history.add(entry, entry.recorded_at)
        except InvalidEntry as problem:
            raise LedgerBroken(entry.seq, f"({described(entry)}) {problem}") from None
        if entry.kind == entries.SEALED:
            del self.unsealed[entry.job]
            if history.stage == entries.SETTLED:
                self._add_up(self.open.pop(entry.job))
            return
        self.unsealed.setdefault(entry.job, entry.seq)
        if entry.kind == entries.OPENED:
            if self._trusted and history.curator_key not in self._trusted:
                reason = f"opens a job with another curator's key: {history.curator_key}; if "
                reason += "you trust it, repeat --curator-key with it."
                raise LedgerBroken(entry.seq, f"({described(entry)}) {reason}")
            self.curator_keys[history.curator_key] = None
            self.jobs += 1
            self.open[entry.job] = history
        elif entry.kind == entries.SETTLED:
            self.jobs_settled += 1

    def _add_up(self, history: JobHistory) -> None:
        for name in _SUMS:
            self.sums[name] += getattr(history, name)
        self.money[history.currency] += history.paid

    def finish(self) -> None:
        """Add up the jobs that are open, and refuse entries that their curator has not sealed."""
        for history in self.open.values():
            self._add_up(history)
        if self.unsealed:
            reason = "and what follows is not sealed by the curator: the seal was cut off."
            raise LedgerBroken(min(self.unsealed.values()), reason)


def _chained(entry: Entry, last: str) -> None:
    """Check that the entry is what was hashed, and follows the one before it."""
    if entry.previous != last:
        raise LedgerBroken(entry.seq, f"({described(entry)}) does not follow the entry before it.")
    try:
        computed = entry_hash(*_HASHED(entry))
    except (TypeError, ValueError):
        computed = None  # not even text
    if entry.hash != computed:
        raise LedgerBroken(entry.seq, f"({described(entry)}) was changed: its hash is another.")


def _check_strays(ledger: Ledger, length: int) -> None:
    """What cannot be seen entry by entry, because closed contracts and jobs are forgotten."""
    strays = [entry.seq for entry in ledger.entries(after=-_MOST, until=0)]
    for entry in ledger.entries(after=length):  # others may have appended these meanwhile
        if entry.seq > length and entry.seq > (length := ledger.head().count):
            strays.append(entry.seq)
            break
    if strays:
        raise LedgerBroken(strays[0], "exists, but the head does not count it.")
    repeated = ledger.repeated
    for kind, seq in (
        (entries.OFFERED, repeated(entries.OFFERED, "contract")),
        (entries.OPENED, repeated(entries.OPENED, "job")),
    ):
        if seq is not None:
            raise LedgerBroken(seq, f"({kind}) happens a second time.")


def _noted(head: Head | str | None) -> Head | None:
    """The head that was noted; one without a count has -1."""
    if head is None or isinstance(head, Head):
        return head
    text = head.strip().lower()
    count, colon, digest = text.rpartition(":")
    if not re.fullmatch(r"([0-9]{1,18}:)?[0-9a-f]{64}", text):
        raise BadInput("head", head, "give count:hash as verify printed it, or the hash.")
    return Head(int(count) if colon else -1, digest)


def _key(text: str) -> str:
    if not is_key(key := text.strip().lower()):
        raise BadInput("curator key", text, "give 64 hexadecimal digits, as verify printed them.")
    return key
