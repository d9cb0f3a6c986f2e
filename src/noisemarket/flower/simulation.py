"""A market over Flower's simulation runtime on this machine, in one call.

This machine deals out the records and the owners' preferences. From then on every owner answers
from a folder of its own, in a worker process of Ray. The curator is a ServerApp in this process and
knows only what owners send it. No port is opened, and the workers end with this process.
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue

import tomli_w

from noisemarket.errors import MissingExtra
from noisemarket.files import private_folder, write_atomic
from noisemarket.flower.host_files import NODES, node_file
from noisemarket.flower.line import Bounds, WorkersDied
from noisemarket.flower.remote_owners import RemoteOwners
from noisemarket.ledger.keys import KeyPair
from noisemarket.machine import available_cores
from noisemarket.market.events import Event
from noisemarket.market.job import run_market
from noisemarket.market.market_folder import MarketFolder
from noisemarket.market.negotiation import Negotiation
from noisemarket.market.outcome import MarketOutcome, MarketRun, Steps
from noisemarket.market.preparation import PreparedMarket, prepare
from noisemarket.owner.folder import RECORDS, OwnerFolder, owner_folder
from noisemarket.pricing.mechanism import Stop, Watch
from noisemarket.pricing.players import seeds

Value = str | int | float | bool
NodeConfig = Mapping[str, Value]

ASKED_PER_CORE = 32
"""Owners asked at a time. Flower looks through all open messages for each of its nodes, so the time
for a thousand at once would grow with the square of the owners."""

RESTARTS = 3
"""How often a job is resumed after a worker has died."""

_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def deal_out(market: PreparedMarket, root: Path, curator_key: str = "") -> dict[str, NodeConfig]:
    """Give every owner a folder with its records and preferences, unless it has them already.

    For simulations: real owners bring their own. Owners cap their privacy loss where the scenario
    does, and allow any loss where it does not. With ``curator_key`` they accept only that curator.
    Returns the node config of each owner, by name.
    """
    scenario, environment, job = market.scenario, market.environment, market.order.job
    seed = seeds(scenario.play_seed())[0]
    configs: dict[str, NodeConfig] = {}
    for index, owner in enumerate(environment.population):
        folder = OwnerFolder(owner.name, owner_folder(root, owner.name))
        private_folder(folder.path)
        if not (folder.path / RECORDS).exists():
            held = job.partition.indices[index]
            images = job.data.ready(job.data.train_images[held])
            folder.keep_records(images, job.data.train_labels[held])
        folder.keep_private(
            {
                "privacy_cost": owner.privacy_cost,
                "markup": owner.markup,
                "floor": owner.floor,
                "payment_value": environment.payment_value,
                "privacy_weight": environment.privacy_weight,
                "payoff": environment.payoff,
                "seed": seed,
            }
        )
        config: dict[str, Value] = {"owner": owner.name, "owner-folder": str(folder.path.resolve())}
        if curator_key:
            config["curator-key"] = curator_key
        if math.isfinite(cap := market.order.budgets[index].rho_cap):
            config["rho-cap"] = cap
        else:
            config["allow-unbounded"] = True
        if scenario.privacy.noise == "simulated":
            config["allow-simulated"] = True
        configs[owner.name] = config
    return configs


def run_simulation(
    market: PreparedMarket,
    folder: str | Path,
    *,
    workers: int | None = None,
    watch: Watch = lambda progress: None,
    stop: Stop | None = None,
) -> MarketRun:
    """Run a market over Flower's simulation; again, to resume it.

    Args:
        market: what to run.
        folder: where the job keeps its files, as that of an embedded market.
        workers: worker processes, by default one for each core.
        watch: is told how negotiation goes.
        stop: when it returns True the job stops, and can be resumed.

    Raises:
        BadInput: the scenario cannot be played by messages.
        MissingExtra: Ray is not installed.
    """
    RemoteOwners.check(market.scenario)
    if find_spec("ray") is None:
        raise MissingExtra("Flower's simulation", "flower")
    path = MarketFolder(Path(folder).resolve())
    return MarketRun(_steps(market, path, workers, watch, stop or (lambda: False)))


def _steps(
    market: PreparedMarket, folder: MarketFolder, workers: int | None, watch: Watch, stop: Stop
) -> Steps:
    folder.prepare()
    key = KeyPair.obtain(folder.curator).public_hex
    configs = deal_out(market, folder.owners, key)
    for restarts_left in reversed(range(RESTARTS + 1)):
        try:
            outcome = yield from _simulated(market, folder, configs, workers, watch, stop)
        except WorkersDied:
            if not restarts_left:
                raise
            logging.getLogger(__name__).warning("A worker of the simulation died; resuming.")
        else:
            break
    known = outcome.negotiation.agreement
    return replace(outcome, negotiation=Negotiation(market.scenario, market.environment, known))


def _simulated(
    market: PreparedMarket,
    folder: MarketFolder,
    configs: Mapping[str, NodeConfig],
    workers: int | None,
    watch: Watch,
    stop: Stop,
) -> Steps:
    """Run the curator in a ServerApp, whose thread hands its events to this one."""
    events, outcomes, closed = SimpleQueue[Event | None](), list[MarketOutcome](), list[bool]()
    cores = workers or available_cores()
    bounds = Bounds(
        grace=600.0, insecure=True, at_once=ASKED_PER_CORE * cores, simulated=True
    )  # fmt: skip

    with _environment(configs) as temporary:
        from flwr.app import Context
        from flwr.serverapp import Grid, ServerApp
        from flwr.simulation import run_simulation as simulate

        from noisemarket.flower.owner_app import owner_app

        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            owners = RemoteOwners(grid, market.scenario, folder, bounds)
            run = run_market(
                prepare(market.scenario, secrets=False), folder.path, owners=owners,
                curator=folder.curator, watch=watch, stop=lambda: bool(closed) or stop(),
            )  # fmt: skip
            for event in run:
                events.put(event)
            outcomes.append(run.outcome)

        backend = {
            "init_args": {"num_cpus": cores, "_temp_dir": temporary, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        }
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(
                simulate, server, owner_app(), len(configs), backend_config=backend
            )
            running.add_done_callback(lambda _: events.put(None))
            try:
                while (event := events.get()) is not None:
                    yield event
            finally:
                closed.append(True)  # if the caller takes no more events, the job stops
            running.result()
    return outcomes[0]


@contextmanager
def _environment(configs: Mapping[str, NodeConfig]) -> Iterator[str]:
    """Set what Ray's workers inherit, and undo what Flower and Ray set besides.

    Simulated nodes know only their number: their configs are files in a folder that a variable
    names. Yields a temporary folder for Ray, with a short name: its sockets lie in it.
    """
    before, logger = dict(os.environ), logging.getLogger("flwr")
    level = logger.level
    with tempfile.TemporaryDirectory(prefix="nm-", ignore_cleanup_errors=True) as temporary:
        nodes = private_folder(Path(temporary) / "nodes")
        for number, config in enumerate(configs.values()):
            write_atomic(node_file(nodes, number), tomli_w.dumps(config), private=True)
        os.environ.update({**_VARIABLES, NODES: str(nodes)})
        logger.setLevel(logging.CRITICAL)  # what matters of it is raised
        try:
            yield temporary
        finally:
            logger.setLevel(level)
            os.environ.clear()
            os.environ.update(before)
