"""What many machines cost: the same market embedded and over a Flower deployment, within one run.

    python benchmarks/flower.py            # 5, 20 and 50 owners on one machine (an hour or more)
    python benchmarks/flower.py --quick    # 3 owners, two rounds: shows that it runs, no more
    python benchmarks/flower.py --markdown FILE   # also writes the tables, ready to paste

Both engines play the same letters, sign the same contracts and train the same network. Measured are
seconds per round and per interaction of the game, messages and bytes per owner and job, and what
share negotiation would have of a job of 30 rounds. Flower's processes are real, on loopback, with
TLS and authentication: on one machine they share its cores, which owners on machines of their own
would not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from noisemarket.flower.local import LocalMarket
from noisemarket.flower.market import interactions
from noisemarket.market import Outcome, run
from noisemarket.scenario import Scenario, dump_scenario

JOB_ROUNDS = 30
GAME = "query.letter"


@dataclass(frozen=True)
class Measured:
    """One engine with one number of owners."""

    engine: str
    owners: int
    round_seconds: float
    game_seconds: float
    interactions: int
    messages: float = 0.0
    kilobytes: float = 0.0

    @property
    def share(self) -> float:
        """The part of negotiation in a job of 30 rounds."""
        return self.game_seconds / (self.game_seconds + JOB_ROUNDS * self.round_seconds)

    def row(self) -> str:
        """A line of the table."""
        per = 1e3 * self.game_seconds / self.interactions
        traffic = f"{self.messages:.0f} | {self.kilobytes:,.0f}" if self.messages else "none | none"
        return (
            f"| {self.owners} | {self.engine} | {self.round_seconds:.2f} | {per:.2f} "
            f"| {100 * self.share:.1f} % | {traffic} |"
        )


def measure(scenario: Scenario, folder: Path, *, flower: bool) -> Measured:
    """Run a market and read its clocks."""
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(dump_scenario(scenario), encoding="utf-8")
    outcome = Outcome()
    events = LocalMarket(scenario, folder, outcome) if flower else run(
        scenario, folder, outcome=outcome
    )  # fmt: skip
    for _ in events:
        pass
    owners, rounds = scenario.population.owners, len(outcome.results)
    seconds = statistics.median(result.seconds for result in outcome.results)
    game, messages, size = outcome.seconds["negotiate"], 0.0, 0.0
    if flower:
        traffic = json.loads((folder / "curator" / "traffic.json").read_text())
        game = sum(one["seconds"] for one in traffic if one["kind"] == GAME)
        for one in traffic:
            times = JOB_ROUNDS / rounds if one["kind"] == "train" else 1.0
            messages += times * (one["sent"] + one["answered"]) / owners
            size += times * (one["bytes_out"] + one["bytes_in"]) / owners / 1000
    name = "Flower deployment" if flower else "embedded"
    return Measured(name, owners, seconds, game, scenario.learning.iterations, messages, size)


def main() -> None:
    """Measure, print, and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="tiny sizes")
    options.add_argument("--owners", type=int, nargs="+", default=[5, 20, 50])
    options.add_argument("--rounds", type=int, default=5, help="rounds that are timed")
    options.add_argument("--markdown", type=Path, help="write the table to this file")
    given = options.parse_args()
    sizes, rounds = ([3], 2) if given.quick else (given.owners, given.rounds)
    lines = [
        "| owners | engine | seconds a round | ms an interaction and pair, all pairs at once "
        "| negotiation's share of 30 rounds | messages per owner and job | kB per owner and job |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    with tempfile.TemporaryDirectory() as place:
        for owners in sizes:
            settings: dict[str, object] = {"owners": owners, "rounds": rounds}
            if given.quick:
                settings |= {"iterations": 400, "data_size": 60, "shards": 4}
            scenario = Scenario.from_preset("market", **settings)
            letter = interactions(scenario)
            scenario = Scenario.from_preset("market", **settings, letter=letter)
            for flower in (False, True):
                start = time.monotonic()
                done = measure(scenario, Path(place) / f"{owners}-{flower}", flower=flower)
                lines.append(done.row())
                print(lines[-1], f" ({time.monotonic() - start:.0f} s in all)", flush=True)
    if given.markdown is not None:
        given.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
