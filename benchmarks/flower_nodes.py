"""What an owner costs in a deployment: processor time for an owner and round, beside plain Flower.

    python -m benchmarks flower_nodes --owners 20 --rounds 5
    python -m benchmarks flower_nodes --owners 50 --rounds 2 --starts warm --only-market
    python -m benchmarks flower_nodes --cold-market # the market with Flower's own processes, too
    python -m benchmarks flower_nodes --quick       # 3 owners: shows that it runs, no more
    python -m benchmarks flower_nodes --out FILE    # adds what is measured to a JSON file

In one run and on the same SuperLink, SuperNodes and poll interval: an app that sends every node an
empty message and gets one back, and then the ``market`` preset with a clock auction. The first with
Flower's own processes (cold), and both with processes copied from one that has imported everything
(warm). Plain Flower is the app that does nothing, cold. Measured is the processor time (user and
system) of all processes between the end of the first and the end of the last round, for an owner
and round. The market's is to be at most 1.5 times that of plain Flower.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.process_tree import ProcessTree
from noisemarket.flower.deploy.app_folder import write_app
from noisemarket.flower.deploy.deployment import Deployment, poll_interval
from noisemarket.flower.deploy.single_machine import at_once, deal_out
from noisemarket.flower.deploy.warm_apps import OWNER
from noisemarket.ledger.keys import KeyPair
from noisemarket.machine import available_cores, machine_in_words
from noisemarket.market.event_file import EVENTS
from noisemarket.market.market_folder import SCENARIO, MarketFolder
from noisemarket.market.preparation import prepare
from noisemarket.scenario import Scenario, dump_scenario

MOST = 1.5
COLD, WARM = "cold", "warm"
NOTHING, MARKET = "plain Flower", "market"
ROUNDS_FILE = "rounds"

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "nothing"
version = "0.1.0"
description = "Sends an empty message to every node, and gets one back."
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["nothing"]

[tool.flwr.app]
publisher = "noisemarket"

[tool.flwr.app.components]
serverapp = "nothing.server_app:app"
clientapp = "nothing.client_app:app"

[tool.flwr.app.config]
rounds = 1
"""
CLIENT = """\
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message, context):
    return Message(RecordDict(), reply_to=message)
"""
SERVER = """\
import os
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    nodes = list(grid.get_node_ids())
    for number in range(context.run_config["rounds"]):
        messages = [Message(RecordDict(), node, "query") for node in nodes]
        replies = list(grid.send_and_receive(messages))
        assert len(replies) == len(nodes) and not any(one.has_error() for one in replies)
        with Path(os.environ["NOISEMARKET_CURATOR"], "rounds").open("a") as file:
            file.write(f"{number}\\n")
"""

HEADS = (
    "| SuperNodes | starts | app | CPU s for an owner and round | times plain Flower | s a round "
    "| until online: s, CPU s | job of so many rounds | s | CPU s | MB, all processes |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class Cost:
    """What an app took on a deployment."""

    owners: int
    starts: str
    app: str
    poll: float
    rounds: int
    owner_round_cpu: float
    round_seconds: float
    cpu: float
    seconds: float
    memory: float
    by_name: dict[str, float]
    start_seconds: float
    start_cpu: float


def markdown(document: dict[str, Any]) -> str:
    """The table of a document."""
    rows = document["rows"]
    plain = {
        one["owners"]: one["owner_round_cpu"]
        for one in rows
        if (one["starts"], one["app"]) == (COLD, NOTHING)
    }
    lines = list(HEADS)
    for one in rows:
        floor = plain.get(one["owners"])
        times = "" if floor is None else f"{one['owner_round_cpu'] / floor:.2f}"
        lines.append(
            f"| {one['owners']} | {one['starts']} | {one['app']} | {one['owner_round_cpu']:.2f} "
            f"| {times} | {one['round_seconds']:.1f} "
            f"| {one['start_seconds']:.0f}, {one['start_cpu']:.0f} | {one['rounds'] + 1} "
            f"| {one['seconds']:.0f} | {one['cpu']:.0f} | {one['memory']:,.0f} |"
        )
    return "\n".join(lines)


class Watch:
    """Notes time and processor time whenever another round has ended, and the most memory."""

    def __init__(self, tree: ProcessTree, rounds: Callable[[], int]) -> None:
        self._tree, self._rounds, self._over = tree, rounds, threading.Event()
        self.begun = time.monotonic(), tree.cpu()
        self.marks: list[tuple[float, float]] = []
        self.names: list[dict[str, float]] = []
        self.memory = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch as long as the block."""
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            if self._rounds() > len(self.marks):
                self.marks.append((time.monotonic(), self._tree.cpu()))
                self.names.append(self._tree.by_name())
                if len(self.marks) == 1:
                    self.memory = self._tree.memory()

    def cost(
        self, owners: int, starts: str, app: str, poll: float, started: tuple[float, float]
    ) -> Cost:
        """What was seen."""
        (first, cpu), (last, end) = self.marks[0], self.marks[-1]
        rounds, now = len(self.marks) - 1, (time.monotonic(), self._tree.cpu())
        names = {
            name: round((value - self.names[0].get(name, 0.0)) / rounds / owners, 3)
            for name, value in self.names[-1].items()
            if value - self.names[0].get(name, 0.0) > 0.005 * rounds * owners
        }
        return Cost(
            owners=owners,
            starts=starts,
            app=app,
            poll=poll,
            rounds=rounds,
            owner_round_cpu=(end - cpu) / rounds / owners,
            round_seconds=(last - first) / rounds,
            cpu=now[1] - self.begun[1],
            seconds=now[0] - self.begun[0],
            memory=self.memory,
            by_name=names,
            start_seconds=started[0],
            start_cpu=started[1],
        )


def lines_with(path: Path, word: str) -> int:
    """How many lines of a file hold a word."""
    return path.read_text(encoding="utf-8").count(word) if path.exists() else 0


def measure(
    tree: ProcessTree, scenario: Scenario, place: Path, rounds: int, starts: str, apps: list[str]
) -> list[Cost]:
    """Start nodes, run the apps on them, and count."""
    owners = scenario.population.owners or 0
    folder = MarketFolder(place / starts)
    folder.prepare()
    (folder.path / SCENARIO).write_text(dump_scenario(scenario), encoding="utf-8")
    nodes = deal_out(prepare(scenario), folder.owners, KeyPair.obtain(folder.curator).public_hex)
    nothing = place / "nothing-app"
    (nothing / "nothing").mkdir(parents=True, exist_ok=True)
    (nothing / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    for name, text in (("__init__", ""), ("client_app", CLIENT), ("server_app", SERVER)):
        (nothing / "nothing" / f"{name}.py").write_text(text, encoding="utf-8")
    poll = poll_interval(owners, available_cores())
    preload = OWNER if starts == WARM else ()
    found, began = [], (time.monotonic(), tree.cpu())
    with Deployment(nodes, curator=folder.path, preload=preload) as deployment:
        started = time.monotonic() - began[0], tree.cpu() - began[1]
        print(
            f"{owners} SuperNodes, {starts}: online after {started[0]:.0f} s and "
            f"{started[1]:.0f} CPU s, {tree.memory():.0f} MB",
            flush=True,
        )
        for app in apps:
            if app == NOTHING:
                watch = Watch(tree, lambda: lines_with(folder.path / ROUNDS_FILE, "\n"))
                given, settings = nothing, {"rounds": rounds}
            else:
                watch = Watch(tree, lambda: lines_with(folder.curator / EVENTS, '"RoundTrained"'))
                given = write_app(place / "market-app")
                at_a_time = at_once(deployment)
                settings = {"scenario": SCENARIO, "folder": ".", "at-once": at_a_time}
            said: list[str] = []
            with watch.watching():
                end = deployment.run(given, settings, show=said.append)
            if not end.completed or len(watch.marks) != rounds:
                raise SystemExit("\n".join([*said[-20:], f"{app}: {end.status}"]))
            found.append(watch.cost(owners, starts, app, poll, started))
            print(found[-1].by_name, flush=True)
    return found


def main() -> None:
    """Measure, print, and store."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="tiny sizes")
    options.add_argument("--owners", type=int, default=20)
    options.add_argument("--rounds", type=int, default=5, help="rounds; all but the first count")
    options.add_argument("--starts", nargs="+", choices=(COLD, WARM), default=[COLD, WARM])
    options.add_argument("--cold-market", action="store_true", help="the market cold, too")
    options.add_argument("--only-market", action="store_true", help="without plain Flower")
    options.add_argument("--out", type=Path, help="add what is measured to this JSON file")
    given = options.parse_args()
    owners, rounds = (3, 2) if given.quick else (given.owners, given.rounds)
    settings: dict[str, object] = {"owners": owners, "rounds": rounds, "mechanism": "clock"}
    if given.quick:
        settings |= {"data_size": 60, "shards": 4}
    tree, costs = ProcessTree(), list[Cost]()
    with tempfile.TemporaryDirectory() as place:
        for starts in given.starts:
            scenario = Scenario.from_preset("market", **settings)
            cold = starts == COLD and not given.cold_market
            apps = [NOTHING] if cold else [MARKET] if given.only_market else [NOTHING, MARKET]
            costs += measure(tree, scenario, Path(place), rounds, starts, apps)
    print("", markdown({"rows": [asdict(one) for one in costs]}), sep="\n")
    for floor in costs:
        for one in costs:
            if (floor.starts, floor.app, one.app) == (COLD, NOTHING, MARKET):
                good = "PASS" if one.owner_round_cpu <= MOST * floor.owner_round_cpu else "MISS"
                print(f"{good}: {one.starts}, at most {MOST} times plain Flower")
    if given.out is not None:
        store(given.out, costs, f"benchmarks/flower_nodes.py --owners {owners} --rounds {rounds}")


def store(path: Path, costs: list[Cost], command: str) -> None:
    """Add what was measured; what was stored for the same owners, starts and app is replaced."""
    new = {(one.owners, one.starts, one.app) for one in costs}
    old = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    kept = [row for row in old if (row["owners"], row["starts"], row["app"]) not in new]
    made = {"command": command, "date": time.strftime("%Y-%m-%d"), "machine": machine_in_words()}
    rows = [{**made, **asdict(one)} for one in costs]
    document = {
        "what": __doc__.splitlines()[0] if __doc__ else "",
        "flwr": version("flwr"),
        "rows": sorted([*kept, *rows], key=lambda row: (row["owners"], row["starts"], row["app"])),
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
