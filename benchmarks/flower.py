"""What Flower costs: the same market embedded and over Flower's simulation, within one run.

    python -m benchmarks flower --owners 10 100 1000 --engines flower --rounds 3
    python -m benchmarks flower --mechanism dypp            # the learned game instead of the clock
    python -m benchmarks flower --quick       # 3 owners, two rounds: shows that it runs, no more
    python -m benchmarks flower --out FILE    # adds what is measured to a JSON file

All negotiate in the same way, sign the same contracts and train the same model. Measured are
seconds by the clock and of processors (user and system, of all processes), memory, and messages and
bytes of a job of 30 rounds. Negotiation is all that comes before the first round: meeting
the owners, prices or quotes, their keys, proposals, signatures and keeping the contracts. Its share
is to be below a quarter, and its messages to an owner at most 40.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.process_tree import ProcessTree
from noisemarket.flower.flower_channel import TRAFFIC
from noisemarket.flower.records import HELLO
from noisemarket.flower.simulation import run_simulation
from noisemarket.machine import Effort
from noisemarket.market.events import RoundTrained
from noisemarket.market.job import run_market
from noisemarket.market.negotiation import run_options
from noisemarket.market.orders import prepare
from noisemarket.owner.owner_messages import QUESTIONS, JobSettled, Train
from noisemarket.pricing.dypp import messages_of
from noisemarket.scenario import Scenario, dump_scenario

JOB_ROUNDS = 30
MOST_SHARE = 0.25
MOST_MESSAGES = 40
EMBEDDED, FLOWER = "embedded", "flower"

PHASES = {
    HELLO: "negotiation",
    **dict.fromkeys(QUESTIONS, "negotiation"),
    Train.kind: "training",
    JobSettled.kind: "settlement",
}

HEADS = (
    "| owners | engine | rounds | s a round | CPU s a round | negotiation, s | settlement, s "
    "| s in all | CPU s in all | MB, all processes | ledger entries |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)
KIND_HEADS = (
    "| message | to an owner and job of 30 rounds | kB to and from an owner |",
    "|---|---|---|",
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
    rounds: int
    round_seconds: float
    negotiation: float
    settlement: float
    seconds: float
    cpu: float
    round_cpu: float
    memory: float
    ledger_entries: int
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def shares(self) -> tuple[float, float, float]:
        """The parts of negotiation, training and settlement in a job of 30 rounds."""
        parts = self.negotiation, JOB_ROUNDS * self.round_seconds, self.settlement
        return parts[0] / sum(parts), parts[1] / sum(parts), parts[2] / sum(parts)

    def verdict(self) -> str:
        """Whether negotiation takes less than a quarter of a job, and few enough messages."""
        good = self.shares[0] < MOST_SHARE and self.asked <= MOST_MESSAGES
        asked = f"{100 * self.shares[0]:.0f} % of 30 rounds, {self.asked:.1f} messages to an owner"
        return f"negotiation {asked}: {'PASS' if good else 'MISS'}"

    @property
    def asked(self) -> float:
        """Messages to an owner before the first round, on average; half of all are replies."""
        before = [one for name, one in self.kinds.items() if PHASES[name] == "negotiation"]
        return sum(one.messages for one in before) / 2 / self.owners


def measure(tree: ProcessTree, scenario: Scenario, folder: Path, engine: str) -> Measured:
    """Run a market, read its clocks, and count what it took."""
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(dump_scenario(scenario), encoding="utf-8")
    market = prepare(scenario)
    begun, memory = time.monotonic(), 0.0

    def used() -> float:
        """This process is the curator's."""
        return tree.cpu() + time.process_time()

    cpu = used()
    run = run_market(market, folder) if engine == EMBEDDED else run_simulation(market, folder)
    ends = list[float]()
    for event in run:
        if isinstance(event, RoundTrained):
            ends.append(used())
            memory = memory or tree.memory()
    outcome = run.outcome
    seconds, kinds = outcome.seconds, {}
    if engine != EMBEDDED:
        traffic = json.loads((folder / "curator" / TRAFFIC).read_text(encoding="utf-8"))
        kinds = by_kind(traffic, len(outcome.results))
    return Measured(
        engine=EMBEDDED if engine == EMBEDDED else "Flower, simulation",
        owners=scenario.population.owners or 0,
        rounds=len(outcome.results),
        round_seconds=statistics.median(result.seconds for result in outcome.results),
        negotiation=seconds["negotiate"] + seconds["sign"],
        settlement=seconds["settle"],
        seconds=time.monotonic() - begun,
        cpu=used() - cpu,
        round_cpu=(ends[-1] - ends[0]) / (len(ends) - 1),
        memory=memory,
        ledger_entries=int(outcome.head.partition(":")[0]),
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


def row(one: dict[str, Any]) -> str:
    """A line of the table, of what was stored."""
    owners, rounds = one["owners"], one["rounds"]
    return (
        f"| {owners:,} | {one['engine']} | {rounds} | {one['round_seconds']:.1f} "
        f"| {one['round_cpu']:.1f} | {one['negotiation']:.1f} | {one['settlement']:.1f} "
        f"| {one['seconds']:.0f} | {one['cpu']:.0f} | {one['memory']:,.0f} "
        f"| {one['ledger_entries']:,} |"
    )


def markdown(document: dict[str, Any]) -> str:
    """The tables of a document: what jobs took, and the messages of the largest one over Flower."""
    lines = [*HEADS, *(row(one) for one in document["rows"])]
    over = [one for one in document["rows"] if one["kinds"]]
    if over:
        lines += ["", *KIND_HEADS, *kind_rows(max(over, key=lambda one: one["owners"]))]
    return "\n".join(lines)


def kind_rows(one: dict[str, Any]) -> list[str]:
    """A line for each kind of message, and one for all, to and from an owner in 30 rounds."""
    kinds = one["kinds"]
    total = {key: sum(kind[key] for kind in kinds.values()) for key in ("messages", "size")}
    return [
        f"| {name} | {kind['messages'] / 2 / one['owners']:.1f} "
        f"| {kind['size'] / one['owners'] / 1000:,.1f} |"
        for name, kind in {**kinds, "all": total}.items()
    ]


def store(path: Path, done: list[dict[str, Any]], command: str, effort: Effort) -> None:
    """Add what was measured; what was stored for the same owners and engine is replaced."""
    new = {(one["owners"], one["engine"]) for one in done}
    old = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    rows = [one for one in old if (one["owners"], one["engine"]) not in new]
    made = {"command": command, **effort.as_dict()}
    rows += [{**made, **one} for one in done]
    versions = {name: version(name) for name in ("flwr", "ray")}
    document = {
        "what": __doc__.splitlines()[0] if __doc__ else "",
        **versions,
        "rows": sorted(rows, key=lambda one: (one["owners"], one["engine"])),
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Measure, print, and store."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="tiny sizes")
    options.add_argument("--owners", type=int, nargs="+", default=[5, 20])
    engines = (EMBEDDED, FLOWER)
    options.add_argument("--engines", nargs="+", choices=engines, default=list(engines))
    options.add_argument("--mechanism", default="clock")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--out", type=Path, help="add what is measured to this JSON file")
    given = options.parse_args()
    sizes, rounds = ([3], 2) if given.quick else (given.owners, given.rounds)
    tree, done = ProcessTree(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as place:
        for owners in sizes:
            settings: dict[str, object] = {
                "owners": owners, "rounds": rounds, "mechanism": given.mechanism
            }  # fmt: skip
            if given.quick:
                settings |= {"iterations": 400, "data_size": 60}
            scenario = Scenario.from_preset("market", **settings)
            letter = messages_of(run_options(scenario).play)
            scenario = Scenario.from_preset("market", **settings, interactions_per_message=letter)
            for engine in given.engines:
                effort = Effort()
                measured = measure(tree, scenario, Path(place) / f"{owners}-{engine}", engine)
                done.append(asdict(measured))
                print(row(done[-1]), measured.verdict(), flush=True)
                if given.out is not None:  # what is measured is kept, should the rest not end
                    command = f"benchmarks/flower.py --owners {owners} --rounds {rounds}"
                    store(given.out, done[-1:], command, effort)
    print("", markdown({"rows": done}), sep="\n")


if __name__ == "__main__":
    main()
