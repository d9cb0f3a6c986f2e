"""How fast contracts are signed and recorded, and how a ledger's verification grows with it.

    python -m benchmarks ledger                       # SQLite, up to 1,000,000 entries
    python -m benchmarks ledger --quick               # up to 10,000
    python -m benchmarks ledger --postgres            # also on a PostgreSQL server of its own
    python -m benchmarks ledger --url postgresql://...  # also on an empty PostgreSQL database

Jobs of 100 contracts and 30 rounds are recorded one after the other: as in a market, a round is two
transactions, when it begins and when it is done. Times are processor seconds, of a server without
its own. Verification runs in a process of its own, whose peak memory is its own. What is measured
goes to ``benchmarks/results/ledger.json``, which the documentation is held to.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noisemarket.errors import BadInput
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import CURATOR, OWNER, KeyPair, SignedContract
from noisemarket.ledger.store import Ledger, open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.machine import Effort
from noisemarket.market.offers import Verdict, settle

CONTRACTS = 100
ROUNDS = 30
RESULTS = Path(__file__).resolve().parent / "results" / "ledger.json"
KEYS = [KeyPair(Ed25519PrivateKey.generate()) for _ in range(CONTRACTS)]
CURATOR_KEY = KeyPair(Ed25519PrivateKey.generate())


def contracts(job: str) -> list[Contract]:
    return [
        Contract(
            job=job,
            owner=f"owner-{number}",
            owner_key=pair.public_hex,
            curator_key=CURATOR_KEY.public_hex,
            saving=0.1,
            sigma=0.5,
            payment=12_540_000,
            protection="sharded",
            clip=1.0,
            shards=64,
            settings={"steps": 2, "rate": 0.2},
            rounds=ROUNDS,
            rho_per_round=0.002,
            rho_cap=0.06,
            epsilon=1.5,
            delta=1e-5,
            neighbours="replace_one",
            protects="one record, replaced by any other",
            offered_at="2030-01-01T00:00:00+00:00",
            expires_at="2100-01-01T00:00:00+00:00",
            nonce=str(number),
        )
        for number, pair in enumerate(KEYS)
    ]


def record(ledger: Ledger, job: str) -> tuple[float, float]:
    """A whole job; gives the processor seconds of contracts and signatures, and of the rest."""
    started = time.process_time()
    agreed = contracts(job)
    signed = [
        SignedContract(one, pair.sign(OWNER, one), CURATOR_KEY.sign(CURATOR, one))
        for pair, one in zip(KEYS, agreed, strict=True)
    ]
    ledger.append([entries.opened(job, 10**10, CURATOR_KEY.public_hex)])
    ledger.append(entries.offered(one) for one in agreed)
    ledger.append(entries.signed(one) for one in signed)
    agreed_after = time.process_time() - started
    for number in range(1, ROUNDS + 1):
        ledger.append([entries.begun(job, number, CONTRACTS)])
        ledger.append(entries.delivered(one, number, statistic=1.0) for one in agreed)
    settle(ledger, job, [Verdict(one, True, ROUNDS) for one in agreed])
    return agreed_after, time.process_time() - started - agreed_after


def grow(ledger: Ledger, sizes: list[int]) -> Iterator[tuple[int, float, float, int]]:
    """Let the ledger grow to each size; gives its length, both times so far, and the jobs."""
    agreeing = working = 0.0
    jobs = 0
    for size in sizes:
        while ledger.head().count < size:
            some, rest = record(ledger, f"job-{jobs}")
            agreeing, working, jobs = agreeing + some, working + rest, jobs + 1
        yield ledger.head().count, agreeing, working, jobs


def verify_apart(place: str) -> tuple[float, float]:
    """Processor seconds and peak MiB of a verification in a fresh process."""
    command = [sys.executable, __file__, "--verify", place]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def measure(place: str, sizes: list[int]) -> list[dict[str, float]]:
    """A row for each size."""
    rows = []
    with open_ledger(place, curator=CURATOR_KEY) as ledger:
        if ledger.head().count:
            raise BadInput("--url", "the ledger there", "is not empty: give another.")
        for count, agreeing, working, jobs in grow(ledger, sizes):
            seconds, peak = verify_apart(place)
            rows.append(
                {
                    "entries": count,
                    "contracts_per_cpu_second": round(jobs * CONTRACTS / agreeing),
                    "entries_per_cpu_second": round(count / (agreeing + working)),
                    "verification_cpu_seconds": round(seconds, 2),
                    "peak_mib": round(peak),
                }
            )
    return rows


def markdown(rows: list[dict[str, float]]) -> str:
    """The table of the documentation (docs/explanation/ledger.md)."""
    out = [
        "| entries | contracts signed and recorded per CPU second "
        "| entries recorded per CPU second | verification, CPU seconds | peak memory, MiB |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        entries, signed, recorded, seconds, peak = row.values()
        out.append(f"| {entries:,} | {signed:,} | {recorded:,} | {seconds:.2f} | {peak:.0f} |")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 10,000 entries; stores nothing")
    parser.add_argument("--most", type=int, default=1_000_000, help="entries of the longest")
    parser.add_argument("--postgres", action="store_true", help="also on a server of its own")
    parser.add_argument("--url", help="also measure this empty PostgreSQL database")
    parser.add_argument("--verify", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.verify:
        with open_ledger(given.verify, create=False) as ledger:
            started = time.process_time()
            verify(ledger)
            seconds = time.process_time() - started
        unit = 2**20 if sys.platform == "darwin" else 2**10
        print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit]))
        return
    effort = Effort()
    sizes = [3_000, 10_000] if given.quick else [10_000, 100_000, 1_000_000]
    sizes = [size for size in sizes if size <= given.most]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        found["SQLite"] = measure(str(Path(folder) / "ledger.sqlite"), sizes)
    if given.url:
        found["PostgreSQL"] = measure(given.url, sizes)
    if given.postgres:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
        from tests.ledger.postgres import Server

        server = Server(durable=True)
        try:
            found["PostgreSQL"] = measure(server.new_place(), sizes)
        finally:
            server.stop()
    for name, rows in found.items():
        print(f"{name}\n\n{markdown(rows)}\n")
    if not given.quick:
        what = __doc__.splitlines()[0] if __doc__ else ""
        command = f"python -m benchmarks ledger --most {given.most}"
        document = {"what": what, "command": command, **effort.as_dict(), **found}
        RESULTS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
