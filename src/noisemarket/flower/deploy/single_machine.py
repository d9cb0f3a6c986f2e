"""A whole market over Flower on this machine: a folder for each owner, real processes, one call.

A simulation in that one machine deals out the data and the owners' preferences. From then on each
owner has its own process, folder and keys, and the curator's process has only what owners send it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.rounds import Checkpoint
from noisemarket.files import private_folder
from noisemarket.flower.deploy.app_folder import write_app
from noisemarket.flower.deploy.deployment import Deployment, NodeSetup, Simulation
from noisemarket.flower.deploy.superlink import RunEnd, SuperLink, Value
from noisemarket.flower.deploy.warm_apps import OWNER, TORCH
from noisemarket.flower.remote_negotiation import tell_progress
from noisemarket.flower.remote_owners import RemoteOwners
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.money import to_micro
from noisemarket.machine import available_cores
from noisemarket.market.deals import Deals
from noisemarket.market.event_file import ENDED, EVENTS, FAILED, NEGOTIATING, Tail, from_line
from noisemarket.market.events import Event, Negotiated, Opened, Signed
from noisemarket.market.market_folder import CHECKPOINT, JOURNAL, SCENARIO, MarketFolder
from noisemarket.market.negotiation import Negotiation
from noisemarket.market.outcome import MarketOutcome, MarketRun, Steps, closing_of
from noisemarket.market.preparation import PreparedMarket
from noisemarket.owner.folder import RECORDS, OwnerFolder, owner_folder
from noisemarket.owner.terms import Deal
from noisemarket.pricing.mechanism import Stop, Watch
from noisemarket.pricing.players import agreement_of, seeds
from noisemarket.privacy.journal import read_journal

DEPLOYMENT, SIMULATION = "deployment", "simulation"
RUNTIMES = (DEPLOYMENT, SIMULATION)
"""How Flower runs owners on this machine: each a SuperNode, or simulated."""

MOST_DEPLOYED = 10
"""Up to so many owners are SuperNodes by default; more are simulated."""

_COLD, _WARM, _SIMULATED = 4, 16, 32
"""Owners at work at a time, for each core: every one of them is a process of its own, which takes
less memory where it is copied from one that has imported everything. In a simulation Flower looks
through all messages that are out for each of its nodes, so that the time for a thousand at once
would grow with the square of the owners."""

_RESTARTS = 3
"""How often a job goes on by itself after a worker of the simulation has died."""


def runtime_of(asked: str | None, owners: int) -> str:
    """The runtime that fits: the one that is asked for, or by the number of owners."""
    if asked is None:
        return DEPLOYMENT if owners <= MOST_DEPLOYED else SIMULATION
    if asked not in RUNTIMES:
        raise BadInput("--runtime", asked, f"choose {' or '.join(RUNTIMES)}.")
    return asked


def at_once(running: SuperLink) -> int:
    """How many owners are asked at a time where all of them share this machine's cores."""
    if isinstance(running, Deployment):
        return (_WARM if running.warm else _COLD) * available_cores()
    return _SIMULATED * available_cores()


def deal_out(market: PreparedMarket, root: Path, curator_key: str = "") -> list[NodeSetup]:
    """Give every owner a folder with its records and its preferences; what is there stays.

    For simulations: real owners bring their own. What the scenario caps the owners cap, too; where
    it caps nothing they allow any loss, since the scenario does: its savings go down to no noise,
    and ``paper`` bounds nothing. ``curator_key`` is the only curator that the owners play with, if
    one is given. Returns the set-up of each owner's SuperNode.
    """
    scenario, environment, job = market.scenario, market.environment, market.order.job
    seed = seeds(scenario.play_seed())[0]
    setups = []
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
        setups.append(NodeSetup(owner.name, config))
    return setups


def run_on_flower(
    market: PreparedMarket,
    folder: str | Path,
    *,
    tls: bool = True,
    runtime: str | None = None,
    watch: Watch = lambda progress: None,
    stop: Stop | None = None,
    show: Callable[[str], None] = lambda line: None,
) -> MarketRun:
    """Run a market over a Flower deployment on this machine; again, to resume it.

    Args:
        market: what to run.
        folder: holds the scenario, and what the job leaves, as that of an embedded market.
        tls: whether the deployment has certificates and keys.
        runtime: ``deployment`` (a SuperNode for each owner) or ``simulation`` (Flower's own, on
            Ray); by default a deployment for up to ten owners.
        watch: is told how negotiation goes.
        stop: when it returns True the job stops, and can be resumed.
        show: is told what Flower prints, line by line.

    Raises:
        BadInput: the scenario cannot be played by messages.
    """
    RemoteOwners.check(market.scenario)
    path, asked = MarketFolder(Path(folder).resolve()), stop or (lambda: False)
    chosen = runtime_of(runtime, len(market.environment))
    return MarketRun(_SingleMachine(market, path, watch, asked, show).steps(chosen, tls))


class _SingleMachine:
    """One run of a job over a deployment on this machine."""

    def __init__(
        self,
        market: PreparedMarket,
        folder: MarketFolder,
        watch: Watch,
        stop: Stop,
        show: Callable[[str], None],
    ) -> None:
        self._market, self._folder = market, folder
        self._watch, self._stop, self._show = watch, stop, show
        self._events: list[Event] = []
        self._seconds: dict[str, float] = {}

    def steps(self, runtime: str, tls: bool) -> Steps:
        """Deal out, start Flower, run the app on it, and follow its events."""
        self._folder.prepare()
        key = KeyPair.obtain(self._folder.curator).public_hex
        nodes = deal_out(self._market, self._folder.owners, key)
        settings: dict[str, Value] = {
            "scenario": SCENARIO,
            "folder": ".",
            "insecure": runtime == SIMULATION or not tls,
        }
        flower: SuperLink
        if runtime == SIMULATION:
            flower = Simulation(nodes, secure=tls, curator=self._folder.path)
        else:
            cnn = self._market.scenario.training.model == "cnn"
            preload = (*OWNER, *TORCH) if cnn else OWNER
            flower = Deployment(nodes, secure=tls, curator=self._folder.path, preload=preload)
        with flower as running:
            settings["at-once"] = at_once(running)
            self._show(f"{len(nodes)} SuperNodes ({runtime}) at {running.address}")
            app = write_app(running.folder / "app")
            left = _RESTARTS
            while (yield from self._run(running, app, settings, restart=left > 0)):
                left -= 1
                self._show("A worker of the simulation died; the job goes on.")
        return self._outcome()

    def _run(
        self, flower: SuperLink, app: Path, settings: dict[str, Value], *, restart: bool
    ) -> Generator[Event, None, bool]:
        """Run the app to its end; whether it is to be run again."""
        tail = Tail(self._folder.curator / EVENTS)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(flower.run, app, settings, show=self._show)
            try:
                return (yield from self._follow(running, tail, restart))
            except BaseException:
                flower.stop_superlink(kill=True)  # ends ``flwr run``, and the wait for it
                raise

    def _follow(
        self, running: Future[RunEnd], tail: Tail, restart: bool
    ) -> Generator[Event, None, bool]:
        problem, again = "", False
        while True:
            over = running.done()
            for line in tail.lines():
                seen = from_line(line)
                if isinstance(seen, Event):
                    self._events = [*([] if isinstance(seen, Opened) else self._events), seen]
                    yield seen
                elif seen["kind"] == NEGOTIATING:
                    tell_progress(self._watch, seen["done"], seen["total"])
                elif seen["kind"] == FAILED:
                    problem, again = str(seen["problem"]), seen.get("again") is True
                elif seen["kind"] == ENDED:
                    self._seconds = dict(seen["seconds"])
            if over:
                break
            if self._stop():
                raise Interrupted("stopped; what was finished is kept.")
            time.sleep(0.2)
        end = running.result()
        if end.completed:
            return False
        if self._stop():  # Ctrl-C ends ``flwr run``, too
            raise Interrupted("stopped; what was finished is kept.")
        if again and restart:
            return True
        raise NoisemarketError(problem or f"The ServerApp ended early: {end.status}.")

    def _outcome(self) -> MarketOutcome:
        """What the job came to, from its events and from what it left in its folder."""
        environment, levels = self._market.environment, self._market.environment.levels
        signed = {event.owner: event for event in self._events if isinstance(event, Signed)}
        traded = tuple(
            Deal(name, signed[name].saving, signed[name].sigma, signed[name].payment)
            if name in signed
            else Deal(name, 0.0, levels.sigma_max, 0)
            for name in map(str, environment.population.names)
        )
        (negotiated,) = (event for event in self._events if isinstance(event, Negotiated))
        deals = Deals(traded, negotiated.agreed, negotiated.over_budget)
        payments = [to_micro(float(value), "payment") for value in levels.payments]
        contracts = {
            index: (int(np.abs(levels.savings - one.saving).argmin()), payments.index(one.payment))
            for index, one in enumerate(traded)
        }
        agreement = agreement_of(contracts, len(environment))
        order = self._market.under(deals)
        state = Checkpoint(self._folder.curator / CHECKPOINT, order.fingerprint).load()
        assert state is not None  # the job is settled
        return MarketOutcome(
            negotiation=Negotiation(self._market.scenario, environment, agreement),
            deals=deals,
            order=order,
            results=tuple(state.results),
            statements=order.statements(read_journal(self._folder.curator / JOURNAL)),
            seconds=self._seconds,
            **closing_of(self._events),
        )
