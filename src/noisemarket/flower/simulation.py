"""A market over Flower's simulation runtime on this machine, in one call.

This machine deals out the records and the owners' preferences. From then on every owner answers
from a folder of its own, in a worker process of Ray. The curator is a ServerApp in this process and
knows only what owners send it. No port is opened, and the workers end with this process.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import tomli_w
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from noisemarket.errors import MissingExtra, NoisemarketError
from noisemarket.files import private_folder, write_atomic
from noisemarket.flower.flower_channel import Bounds, FlowerChannel, WorkersDied
from noisemarket.flower.owner_app import owner_app
from noisemarket.ledger.keys import KeyPair
from noisemarket.machine import available_cores
from noisemarket.market.events import Event
from noisemarket.market.job import run_market
from noisemarket.market.lasting import own_numbers, records_of
from noisemarket.market.negotiation import Negotiation
from noisemarket.market.orders import PreparedMarket, check_asks, prepare
from noisemarket.market.outcome import MarketOutcome, MarketRun, Steps
from noisemarket.market.run_folder import MarketFolder
from noisemarket.owner.folder import RECORDS, OwnerFolder, owner_folder
from noisemarket.pricing.mechanism import Stop, Watch

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
    # On a busy machine processes may start slowly: Ray gives them up after half a minute.
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_agent_register_timeout_ms": "600000",
}


def deal_out(
    market: PreparedMarket, root: Path, curator_key: str = "", *, renew: bool = False
) -> dict[str, NodeConfig]:
    """Give every owner a folder with its records and preferences, unless it has them already.

    For simulations: real owners bring their own. Owners cap their privacy loss where the scenario
    does, and allow any loss where it does not. With ``curator_key`` they accept only that curator.
    Returns the node config of each owner, by name.
    """
    scenario, environment, job = market.scenario, market.environment, market.order.job
    configs: dict[str, NodeConfig] = {}
    numbers = list(own_numbers(market))
    for index, name in enumerate(map(str, environment.population.names)):
        folder = OwnerFolder(name, owner_folder(root, name))
        private_folder(folder.path)
        own = records_of(market, index)
        if not (folder.path / RECORDS).exists() or folder.records_digest() != own:
            held = job.partition.indices[index]
            images = job.data.ready(job.data.train_images[held])
            folder.keep_records(images, job.data.train_labels[held], digest=np.array(own))
        folder.keep_private(numbers[index], renew=renew)
        config: dict[str, Value] = {"owner": name, "owner-folder": str(folder.path.resolve())}
        if curator_key:
            config["curator-key"] = curator_key
        if math.isfinite(cap := market.order.budgets[index].rho_cap):
            config["rho-cap"] = cap
        else:
            config["allow-unbounded"] = True
        if scenario.privacy.noise == "simulated":
            config["allow-simulated"] = True
        configs[name] = config
    return configs


def run_simulation(
    market: PreparedMarket,
    folder: str | Path,
    *,
    workers: int | None = None,
    watch: Watch = lambda progress: None,
    stop: Stop | None = None,
    owners: Path | None = None,
    renew: bool = False,
) -> MarketRun:
    """Run a market over Flower's simulation; again, to resume it.

    ``owners`` is the folder of owners that outlive the run, by default in the job's own; with
    ``renew`` they take the scenario's numbers. The rest is as in ``run_market``.
    """
    check_asks(market.scenario, market.environment)
    if find_spec("ray") is None:
        raise MissingExtra("Flower's simulation", "flower")
    path = MarketFolder(Path(folder).resolve())
    count = workers or available_cores()
    given = watch, stop or (lambda: False)
    return MarketRun(_steps(market, path, count, *given, owners, renew))


def _steps(
    market: PreparedMarket, folder: MarketFolder, workers: int, watch: Watch, stop: Stop,
    owners: Path | None, renew: bool,
) -> Steps:  # fmt: skip
    folder.prepare()
    home = None if owners is None else owners / folder.curator.name
    key = KeyPair.obtain(folder.curator, home).public_hex
    configs = deal_out(market, owners or folder.owners, key, renew=renew)
    for restarts_left in reversed(range(RESTARTS + 1)):
        try:
            outcome = yield from _simulated(market, folder, configs, workers, watch, stop, owners)
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
    workers: int,
    watch: Watch,
    stop: Stop,
    owners: Path | None,
) -> Steps:
    """Run the curator in a ServerApp, whose thread hands its events to this one."""
    events, outcomes, closed = SimpleQueue[Event | None](), list[MarketOutcome](), list[bool]()
    at_once = ASKED_PER_CORE * workers
    bounds = Bounds(insecure=True, at_once=at_once, simulated=True)

    def curator(grid: Grid) -> None:
        blind = prepare(market.scenario, secrets=False)
        names = [str(name) for name in blind.environment.population.names]
        channel = FlowerChannel(grid, names, folder, bounds)
        run = run_market(
            blind, folder.path, channel=channel, owners=owners,
            curator=folder.curator, watch=watch, stop=lambda: bool(closed) or stop(),
        )  # fmt: skip
        for event in run:
            events.put(event)
        outcomes.append(run.outcome)

    with _quiet(), ThreadPoolExecutor(1) as pool:
        running = pool.submit(simulate, list(configs.values()), curator, workers)
        running.add_done_callback(lambda _: events.put(None))
        try:
            while True:
                _rearm()
                try:
                    event = events.get(timeout=1)
                except Empty:
                    continue
                if event is None:
                    break
                yield event
        finally:
            closed.append(True)  # if the caller takes no more events, the job stops
        running.result()
    return outcomes[0]


def simulate(
    configs: Sequence[NodeConfig],
    curator: Callable[[Grid], None],
    workers: int = 1,
    app: ClientApp | None = None,
) -> None:
    """Call ``curator`` with a grid of simulated nodes, and wait for its end.

    There is a node for each of ``configs``; all run ``app``, by default that of a market's owner.
    """
    server = ServerApp()

    @server.main()
    def main(grid: Grid, _: Context) -> None:
        curator(grid)

    with (
        _environment(),
        tempfile.TemporaryDirectory(prefix="nm-", ignore_cleanup_errors=True) as at,
    ):
        nodes = private_folder(Path(at) / "nodes")
        for number, config in enumerate(configs):
            write_atomic(_node_file(nodes, number), tomli_w.dumps(config), private=True)
        backend: dict[str, dict[str, Any]] = {
            "init_args": {
                "num_cpus": workers,
                "_temp_dir": at,  # a short name: sockets lie in it
                "log_to_driver": False,
                "logging_level": logging.ERROR,
            },
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        }
        from flwr.simulation import run_simulation as run_flower

        try:
            run_flower(
                server, _SimulatedNode(app or owner_app(), nodes), len(configs),
                backend_config=backend,
            )  # fmt: skip
        except RuntimeError as problem:
            why = problem.__cause__ or problem
            raise NoisemarketError(f"Flower's simulation failed: {why}") from problem


class _SimulatedNode(ClientApp):
    """An app with its node's config. Flower tells a simulated node its number only; the config is
    the file of that number, since Flower copies this object for every message."""

    def __init__(self, app: ClientApp, nodes: Path) -> None:
        super().__init__()
        self._app, self._nodes = app, nodes

    def __call__(self, message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])
        own = {**context.node_config, **_read(_node_file(self._nodes, number))}
        known = Context(
            context.run_id, context.node_id, own, context.state, context.run_config
        )  # fmt: skip
        return self._app(message, known)


def _node_file(folder: Path, number: int) -> Path:
    return folder / f"{number}.toml"


@lru_cache(maxsize=4096)
def _read(path: Path) -> NodeConfig:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@contextmanager
def _environment() -> Iterator[None]:
    """Set Ray's variables, undo what Flower and Ray set besides, and hide one warning of Flower:
    that ``run_simulation`` will be removed some day. It is the only way without an open port."""
    before, logger = dict(os.environ), logging.getLogger("flwr")
    os.environ.update(_VARIABLES)
    logger.addFilter(_not_deprecated)
    try:
        yield
    finally:
        logger.removeFilter(_not_deprecated)
        os.environ.clear()
        os.environ.update(before)


def _rearm() -> None:
    """Take SIGTERM back from Ray, which starts in another thread and ends the process on it."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _not_deprecated(record: logging.LogRecord) -> bool:
    return "run_simulation" not in record.getMessage()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Flower's log: a market says itself how it goes, and raises what is wrong."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
