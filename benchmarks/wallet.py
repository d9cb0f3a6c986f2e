"""What an operation of an owner's wallet costs, and how much memory, after so many jobs.

    python -m benchmarks wallet                10,000 jobs of three rounds

A job is reserved, held, spent round by round and freed, every line on disk before the next. It
prints CPU time of an operation in each tenth of the jobs: it must not grow.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from noisemarket.owner.wallet import Wallet
from noisemarket.privacy.accountant import PrivacyBudget

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs, each = parser.parse_args().jobs, 3 + ROUNDS
    terms = PrivacyBudget("anna", "per_record", 0.6, 0.02, rho_cap=1e-6)
    with tempfile.TemporaryDirectory() as place:
        wallet = Wallet(Path(place), "anna", "ab" * 32)
        for tenth in range(10):
            start, operations = time.process_time(), 0
            for job in range(tenth * jobs // 10, (tenth + 1) * jobs // 10):
                name = f"{job:032x}"
                wallet.reserve(name, terms, "2999-01-01T00:00:00+00:00", 1.0)
                wallet.hold(name)
                for number in range(1, ROUNDS + 1):
                    wallet.spend(name, number, f"{job} {number}", 1e-7)
                wallet.free(name)
                operations += each
            took = 1000 * (time.process_time() - start) / max(1, operations)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            done = (tenth + 1) * jobs // 10
            print(f"{done:,} jobs: {took:.2f} CPU ms an operation, {most:.1f} MiB", flush=True)
        account, size = wallet.account(), wallet.path.stat().st_size / 1e6
        print(f"{account.jobs:,} jobs, rho {account.spent:.6g}, a file of {size:.1f} MB")


if __name__ == "__main__":
    main()
