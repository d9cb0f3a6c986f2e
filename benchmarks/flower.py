"""What Flower costs: the same market embedded and over Flower's runtimes, within one run.

    python benchmarks/flower.py --owners 10 100 1000 --runtimes simulation --rounds 3
    python benchmarks/flower.py --owners 5 20 --rounds 2    # in a deployment, too
    python benchmarks/flower.py --mechanism dypp            # the learned game instead of the clock
    python benchmarks/flower.py --quick    # 3 owners, two rounds: shows that it runs, no more
    python benchmarks/flower.py --markdown FILE   # also writes the tables, ready to paste

All negotiate in the same way, sign the same contracts and train the same model. Measured are
seconds per round; then, for a job of 30 rounds, messages and bytes per owner, and the shares of
negotiation, training and settlement. Negotiation is all that comes before the first round: meeting
the owners, prices or quotes, their keys, offers, signatures and keeping the contracts. Its share is
to be below a quarter, and its messages to an owner at most 40. Flower's processes are real, on
loopback, with TLS: on one machine they share its cores, which owners on machines of their own would
not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noisemarket.flower import wire
from noisemarket.flower.deploy.single_machine import RUNTIMES, run_on_flower
from noisemarket.flower.remote_game import interactions
from noisemarket.market import prepare, run_market
from noisemarket.scenario import Scenario, dump_scenario

JOB_ROUNDS = 30
MOST_SHARE = 0.25
MOST_MESSAGES = 40
EMBEDDED = "embedded"

PHASES = {
    wire.HELLO: "negotiation",
    wire.QUOTES: "negotiation",
    wire.PRICE: "negotiation",
    wire.KEY: "negotiation",
    wire.CONTRACT: "negotiation",
    wire.SIGNED: "negotiation",
    wire.TRAIN: "training",
    wire.SETTLED: "settlement",
}

HEADS = (
    "| owners | engine | seconds a round | negotiation, s | settlement, s "
    "| negotiation, training, settlement in 30 rounds "
    "| messages to an owner before the first round "
    "| negotiation below a quarter, at most 40 messages |",
    "|---|---|---|---|---|---|---|---|",
)
KIND_HEADS = (
    "| owners | message | phase | exchanges | messages per owner and job | kB per owner and job "
    "| seconds, all owners at once |",
    "|---|---|---|---|---|---|---|",
)


@dataclass
class Kind:
    """What the messages of one kind took in a job of 30 rounds."""

    exchanges: float = 0.0
    messages: float = 0.0
    size: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Measured:
    """One engine with one number of owners. Seconds are those of the curator's own clock."""

    engine: str
    owners: int
    round_seconds: float
    negotiation: float
    settlement: float
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def shares(self) -> tuple[float, float, float]:
        """The parts of negotiation, training and settlement in a job of 30 rounds."""
        parts = self.negotiation, JOB_ROUNDS * self.round_seconds, self.settlement
        return parts[0] / sum(parts), parts[1] / sum(parts), parts[2] / sum(parts)

    def row(self) -> str:
        """A line of the table."""
        shares = " / ".join(f"{100 * share:.1f} %" for share in self.shares)
        asked = self.asked
        good = self.shares[0] < MOST_SHARE and asked <= MOST_MESSAGES
        return (
            f"| {self.owners} | {self.engine} | {self.round_seconds:.2f} | {self.negotiation:.1f} "
            f"| {self.settlement:.1f} | {shares} | {asked:.1f} | {'PASS' if good else 'MISS'} |"
        )

    @property
    def asked(self) -> float:
        """Messages to an owner before the first round, on average; half of all are replies."""
        before = [one for name, one in self.kinds.items() if PHASES[name] == "negotiation"]
        return sum(one.messages for one in before) / 2 / self.owners

    def kind_rows(self) -> list[str]:
        """A line for each kind of message, and one for all."""
        rows, total = [], Kind()
        for name, one in self.kinds.items():
            rows.append(self._kind_row(name, PHASES[name], one))
            for part, value in vars(one).items():
                setattr(total, part, getattr(total, part) + value)
        return [*rows, self._kind_row("all", "", total)] if rows else []

    def _kind_row(self, name: str, phase: str, one: Kind) -> str:
        return (
            f"| {self.owners} | {name} | {phase} | {one.exchanges:.0f} "
            f"| {one.messages / self.owners:.1f} | {one.size / self.owners / 1000:,.1f} "
            f"| {one.seconds:.1f} |"
        )


def measure(scenario: Scenario, folder: Path, engine: str) -> Measured:
    """Run a market and read its clocks."""
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(dump_scenario(scenario), encoding="utf-8")
    market = prepare(scenario)
    if engine == EMBEDDED:
        outcome = run_market(market, folder).finish()
    else:
        outcome = run_on_flower(market, folder, runtime=engine).finish()
    seconds, kinds = outcome.seconds, {}
    if engine != EMBEDDED:
        traffic = json.loads((folder / "curator" / "traffic.json").read_text(encoding="utf-8"))
        kinds = by_kind(traffic, len(outcome.results))
    return Measured(
        engine=engine if engine == EMBEDDED else f"Flower, {engine}",
        owners=scenario.population.owners or 0,
        round_seconds=statistics.median(result.seconds for result in outcome.results),
        negotiation=seconds["negotiate"] + seconds["sign"],
        settlement=seconds["settle"],
        kinds=kinds,
    )


def by_kind(traffic: list[dict[str, Any]], rounds: int) -> dict[str, Kind]:
    """What each kind of message took, in the order of a job; training for 30 rounds."""
    kinds: dict[str, Kind] = {}
    for name, phase in PHASES.items():
        times = JOB_ROUNDS / rounds if phase == "training" else 1.0
        for one in traffic:
            if one["kind"] == name:
                kind = kinds.setdefault(name, Kind())
                kind.exchanges += times
                kind.messages += times * (one["sent"] + one["answered"])
                kind.size += times * (one["bytes_out"] + one["bytes_in"])
                kind.seconds += times * one["seconds"]
    if unknown := {one["kind"] for one in traffic} - PHASES.keys():
        raise SystemExit(f"messages of no known phase: {', '.join(sorted(unknown))}")
    return kinds


def main() -> None:
    """Measure, print, and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="tiny sizes")
    options.add_argument("--owners", type=int, nargs="+", default=[5, 20])
    options.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    options.add_argument("--mechanism", default="clock")
    options.add_argument("--rounds", type=int, default=5, help="rounds that are timed")
    options.add_argument("--markdown", type=Path, help="write the tables to this file")
    given = options.parse_args()
    sizes, rounds = ([3], 2) if given.quick else (given.owners, given.rounds)
    lines, kind_lines = list(HEADS), list(KIND_HEADS)
    print("\n".join(lines))
    with tempfile.TemporaryDirectory() as place:
        for owners in sizes:
            settings: dict[str, object] = {
                "owners": owners, "rounds": rounds, "mechanism": given.mechanism
            }  # fmt: skip
            if given.quick:
                settings |= {"iterations": 400, "data_size": 60, "shards": 4}
            scenario = Scenario.from_preset("market", **settings)
            letter = interactions(scenario)
            scenario = Scenario.from_preset("market", **settings, interactions_per_message=letter)
            for engine in (EMBEDDED, *given.runtimes):
                start = time.monotonic()
                done = measure(scenario, Path(place) / f"{owners}-{engine}", engine)
                lines.append(done.row())
                kind_lines += done.kind_rows()
                print(lines[-1], f" ({time.monotonic() - start:.0f} s in all)", flush=True)
                if given.markdown is not None:  # what is measured is kept, should the rest not end
                    text = "\n".join([*lines, "", *kind_lines]) + "\n"
                    given.markdown.write_text(text, encoding="utf-8")
    print("", *kind_lines, sep="\n")


if __name__ == "__main__":
    main()
