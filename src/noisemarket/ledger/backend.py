"""Where a ledger is kept: one interface, which another package can fill.

``Ledger`` decides what may be recorded and chains it; a backend keeps the entries. A package adds
one by an entry point in the group ``noisemarket.ledgers``, named by the scheme of its URLs::

    [project.entry-points."noisemarket.ledgers"]
    redis = "my_package.ledger:RedisBackend"

``noisemarket run --set ledger=redis://host`` then calls
``RedisBackend("redis://host", create=True)``.
``tests/ledger/conformance.py`` is the suite that a backend has to pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

from noisemarket.ledger.entries import OFFERED, Entry, Head


class Transaction(ABC):
    """A writer's view of the ledger, while no other writer can change it."""

    head: Head
    """The head before anything is added."""

    @abstractmethod
    def recorded(self, job: str, keys: Sequence[str]) -> Iterator[Entry]:
        """The job's entries that have one of these once keys."""

    @abstractmethod
    def entries(self, job: str, after: int) -> Iterator[Entry]:
        """The job's entries after that number, in order."""

    @abstractmethod
    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries, the first of which follows the head, and move the head to the last."""


class LedgerBackend(ABC):
    """Keeps the entries of a ledger and its head, durably, for any number of processes.

    ``Backend(where, create=True)`` starts an empty ledger, with head ``Head(0, FIRST)``, if there
    is none; with ``create=False`` it changes nothing.

    Example:
        ``tests/ledger/lines_backend.py`` keeps a ledger in a text file. Such a class is used by
        the scheme of its URLs once an entry point names it::

            nm.Scenario.from_preset("market", ledger="redis://host")

    Raises:
        BadInput: ``where`` cannot be used.
        NoLedger: it holds no ledger, and ``create`` is false.
        LedgerError: the ledger cannot be reached, read or written. So do all methods.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Where it is, without any password."""

    @abstractmethod
    def close(self) -> None:
        """Release all that is held."""

    @abstractmethod
    def head(self) -> Head | None:
        """The number and hash of the last entry; None if the head is lost."""

    @abstractmethod
    def entries(
        self,
        *,
        job: str | None = None,
        contracts: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        after: int = 0,
        until: int | None = None,
    ) -> Iterator[Entry]:
        """Entries in order, in constant memory, also while others write.

        Args:
            job: only those of this job.
            contracts: only those of these contracts.
            kinds: only those of these kinds.
            after: only those with a larger number.
            until: only those with a number up to this one.

        Returns:
            The entries that all of these leave.
        """

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction, for one writer at a time: the others wait.

        What was added is durable when the block ends, and is gone if it raises or is killed.
        """

    def counts(
        self, field: Literal["job", "contract"], names: Sequence[str]
    ) -> Mapping[tuple[str, str], int]:
        """How many entries these jobs or contracts have, by name and kind."""
        if field == "contract":
            found = self.entries(contracts=names)
        else:
            found = (entry for name in names for entry in self.entries(job=name))
        return Counter((str(getattr(entry, field)), entry.kind) for entry in found)

    def contract_ids(self, prefix: str, most: int) -> list[str]:
        """The ids of offered contracts that begin so; at most so many of them."""
        found: dict[str, None] = {}
        for entry in self.entries(kinds=[OFFERED]):
            if str(entry.contract).startswith(prefix):
                found[str(entry.contract)] = None
            if len(found) == most:
                break
        return list(found)

    def repeated(self, kind: str, field: Literal["job", "contract"]) -> int | None:
        """The number of an entry of a kind that its job or contract has twice; None if none is."""
        seen: set[str] = set()
        for entry in self.entries(kinds=[kind]):
            if (name := str(getattr(entry, field))) in seen:
                return entry.seq
            seen.add(name)
        return None
