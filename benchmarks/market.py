"""What the market costs on top of bare training: keys, signatures, checks of uploads, the ledger.

    python -m benchmarks market            # 100 owners, 30 rounds, MNIST
    python -m benchmarks market --quick    # two rounds: shows that everything runs, no more
    python -m benchmarks market --owners 300 --rounds 10 --postgres

One run of the whole market, in which every part is timed where it stands: ratios within one run do
not depend on how busy the machine is from one run to the next. Nothing else runs while the main
process signs, checks or records, so its time is the job's. What bare training does too (its own
account of privacy, its checkpoints) is shown and does not count as the market's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from noisemarket.federated.rounds import Checkpoint
from noisemarket.ledger import store
from noisemarket.ledger.keys import KeyPair
from noisemarket.market import job, offers
from noisemarket.market.inspection import UploadInspector
from noisemarket.market.job import run_market
from noisemarket.market.outcome import MarketOutcome
from noisemarket.market.training import LocalEngine
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import OwnerFolder
from noisemarket.privacy.accountant import JournalledAccountant
from noisemarket.scenario import Scenario

TRAINING, ACCOUNT, NEGOTIATION = "training and testing", "privacy account, checkpoints", "game"
KEYS, SIGNING, CHECKS, LEDGER, REST = (
    *("keys of all parties", "signing", "checks of uploads", "ledger and settlement"),
    "data, start of workers, files",
)
PARTS: list[tuple[str, Any, tuple[str, ...]]] = [
    (TRAINING, LocalEngine, ("train", "score")),
    (ACCOUNT, JournalledAccountant, ("charge_all", "statement")),
    (ACCOUNT, Checkpoint, ("save", "load")),
    (NEGOTIATION, job._OpenJob, ("_negotiate",)),
    (KEYS, KeyPair, ("create", "load")),
    (KEYS, OwnerFolder, ("keep_private",)),
    (SIGNING, job, ("drawn_up", "countersign")),
    (SIGNING, OwnerAgent, ("sign", "keep")),
    (CHECKS, UploadInspector, ("inspect", "state", "evidence")),
    (LEDGER, store.Ledger, ("append", "head")),
    (LEDGER, offers, ("_matched",)),
    (LEDGER, OwnerFolder, ("keep_statement",)),
]


class Clock:
    """Seconds by part; what a part calls that is a part of its own counts there alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = time.perf_counter()

    def _turn(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1] if self._open else REST] += now - self._since
        self._since = now

    def timed(self, part: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self._turn()
            self._open.append(part)
            try:
                return real(*given, **named)
            finally:
                self._turn()
                self._open.pop()

        return call

    def watch(self) -> None:
        """Time every part from now on."""
        for part, place, names in PARTS:
            for name in names:
                made = self.timed(part, getattr(place, name))
                static = isinstance(vars(place).get(name), classmethod)
                setattr(place, name, staticmethod(made) if static else made)
        self.seconds.clear()
        self._since = time.perf_counter()


def measure(scenario: Scenario, workers: int | None) -> tuple[dict[str, float], MarketOutcome]:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        clock.watch()
        outcome = run_market(scenario, Path(folder) / "run", workers=workers).finish()
        clock._turn()
    return dict(clock.seconds), outcome


def show(seconds: dict[str, float], outcome: MarketOutcome, title: str) -> None:
    whole = sum(seconds.values())
    table = Table(title=title)
    table.add_column("part")
    for name in ("seconds", "of the job"):
        table.add_column(name, justify="right")
    for part in (NEGOTIATION, TRAINING, ACCOUNT, REST, KEYS, SIGNING, CHECKS, LEDGER):
        spent = seconds.get(part, 0.0)
        table.add_row(part, f"{spent:.2f}", f"{100 * spent / whole:.2f} %")
    table.add_section()
    table.add_row("the whole job", f"{whole:.2f}", "100 %")
    market = sum(seconds.get(part, 0.0) for part in (KEYS, SIGNING, CHECKS, LEDGER))
    table.add_row("the market over bare training", f"{market:.2f}", f"{100 * market / whole:.2f} %")
    Console(width=100).print(table)
    print(f"{len(outcome.payments)} contracts kept, {len(outcome.broken)} broken.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--owners", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--workers", type=int, help="by default one per core")
    parser.add_argument("--postgres", action="store_true", help="ledger on a server of its own")
    given = parser.parse_args()
    rounds = 2 if given.quick else given.rounds
    ledger, server = "", None
    if given.postgres:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
        from tests.ledger.postgres import Server

        server = Server(durable=True)
        ledger = server.new_place()
    try:
        scenario = Scenario.from_preset("market", owners=given.owners, rounds=rounds, ledger=ledger)
        seconds, outcome = measure(scenario, given.workers)
    finally:
        if server is not None:
            server.stop()
    where = "PostgreSQL" if given.postgres else "SQLite"
    show(seconds, outcome, f"{given.owners} owners, {rounds} rounds, ledger on {where}")


if __name__ == "__main__":
    main()
