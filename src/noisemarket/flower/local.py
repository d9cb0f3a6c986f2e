"""A whole market over Flower on this machine: a folder for each owner, real processes, one command.

A simulation in that one machine deals out the data and the owners' secrets. From then on each owner
has its own process, folder and keys, and the curator's process has only what owners send it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.cores import available_cores
from noisemarket.errors import Interrupted, NoisemarketError
from noisemarket.federated.rounds import Checkpoint
from noisemarket.files import private_folder
from noisemarket.flower.app import write_app
from noisemarket.flower.deployment import Deployment, NodeSetup, RunEnd
from noisemarket.flower.market import FlowerOwners
from noisemarket.flower.owner import RECORDS, OwnerFolder
from noisemarket.game.environment import Environment
from noisemarket.learning.players import seeds
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.money import to_micro
from noisemarket.market import MarketOutcome
from noisemarket.market.deals import Deal, Deals
from noisemarket.market.event_file import ENDED, EVENTS, FAILED, NEGOTIATING, Tail, from_line
from noisemarket.market.events import (
    Broken,
    Event,
    LeftOut,
    Negotiated,
    Opened,
    Paid,
    RoundTrained,
    Settled,
    Signed,
)
from noisemarket.market.folder import CHECKPOINT, JOURNAL, SCENARIO, MarketFolder
from noisemarket.market.parties import keep_secrets, owner_folder
from noisemarket.mechanisms.by_message import agreement_of
from noisemarket.mechanisms.mechanism import Progress, same_for_all
from noisemarket.negotiation import Negotiation
from noisemarket.privacy.journal import read_journal
from noisemarket.scenario import Scenario
from noisemarket.training import order

_LOOK = 0.2
_AT_ONCE = 4
"""Owners at work at a time, for each core: every one of them is a process with torch in it."""


def deal_out(
    scenario: Scenario, environment: Environment, root: Path, curator_key: str = ""
) -> list[NodeSetup]:
    """Give every owner a folder with its records and its secrets; what is there stays.

    For simulations: real owners bring their own. Owners play with the curator of this key alone,
    where one is given. What the scenario caps they cap, too; where it caps nothing they allow any
    loss, since the scenario does: its savings go down to no noise, and ``paper`` bounds nothing.
    """
    full = np.full(len(environment), scenario.game.sigma_max)
    made = order(scenario, environment, full)
    job = made.job
    seed = seeds(scenario.play_seed())[0]
    setups = []
    for place, one in enumerate(environment.population):
        owner = OwnerFolder(one.name, owner_folder(root, one.name))
        private_folder(owner.path)
        if not (owner.path / RECORDS).exists():
            where = job.partition.indices[place]
            owner.keep_records(job.data.ready(job.data.train_images[where]),
                               job.data.train_labels[where])  # fmt: skip
        secret: dict[str, Any] = {
            "privacy_cost": one.privacy_cost,
            "markup": one.markup,
            "payment_value": environment.payment_value,
            "privacy_weight": environment.privacy_weight,
            "payoff": environment.payoff,
            "seed": seed,
        }
        keep_secrets(owner.path, secret)
        config: dict[str, str | float] = {
            "owner": one.name,
            "owner-folder": str(owner.path.resolve()),
        }
        if curator_key:
            config["curator-key"] = curator_key
        if math.isfinite(cap := made.budgets[place].rho_cap):
            config["rho-cap"] = cap
        else:
            config["allow-unbounded"] = True
        if scenario.privacy.noise == "simulated":
            config["allow-simulated"] = True
        setups.append(NodeSetup(one.name, config))
    return setups


class LocalMarket:
    """A market over a deployment on this machine, as one stream of events.

    ``folder`` holds a scenario and what the job leaves, as that of an embedded market; ``bounds``
    are ``timeout``, ``grace`` and ``wait`` of ``FlowerOwners``. Iterated again on the same folder,
    a job goes on.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        outcome: MarketOutcome | None = None,
        *,
        secure: bool = True,
        watch: Callable[[Progress], None] = lambda progress: None,
        stop: Callable[[], bool] = lambda: False,
        show: Callable[[str], None] = lambda line: None,
        **bounds: float,
    ) -> None:
        FlowerOwners.check(scenario)
        self._scenario, self._folder = scenario, MarketFolder(folder.resolve())
        self.outcome = outcome or MarketOutcome()
        self._secure, self._watch, self._stop, self._show = secure, watch, stop, show
        self._bounds = bounds
        self._environment = scenario.environment()
        self._signed: dict[str, Signed] = {}
        self._negotiated: Negotiated | None = None

    def __iter__(self) -> Iterator[Event]:
        self._folder.prepare()
        key = KeyPair.obtain(self._folder.curator).public_hex
        nodes = deal_out(self._scenario, self._environment, self._folder.owners, key)
        settings: dict[str, str | float] = {
            "scenario": str(self._folder.path / SCENARIO),
            "folder": str(self._folder.path),
            "insecure": not self._secure,
            "at-once": _AT_ONCE * available_cores(),
            **self._bounds,
        }
        tail = Tail(self._folder.curator / EVENTS)
        with Deployment(nodes, secure=self._secure) as deployment, ThreadPoolExecutor(1) as pool:
            self._show(f"{len(nodes)} SuperNodes at {deployment.address}")
            app = write_app(deployment.folder / "app")
            running = pool.submit(deployment.run, app, settings, show=self._show)
            try:
                yield from self._follow(running, tail)
            except BaseException:
                deployment.stop_superlink(kill=True)  # ends ``flwr run``, and the wait for it
                raise
        self._fill_in()

    def _follow(self, running: Future[RunEnd], tail: Tail) -> Iterator[Event]:
        problem = ""
        while True:
            over = running.done()
            for line in tail.lines():
                seen = from_line(line)
                if isinstance(seen, Event):
                    self._note(seen)
                    yield seen
                elif seen["kind"] == NEGOTIATING:
                    nobody = same_for_all(0, 0, 0)
                    self._watch(Progress(slice(0, 0), nobody, seen["done"], seen["total"]))
                elif seen["kind"] == FAILED:
                    problem = str(seen["problem"])
                elif seen["kind"] == ENDED:
                    self.outcome.seconds = dict(seen["seconds"])
            if over:
                break
            if self._stop():
                raise Interrupted("stopped; what was finished is kept.")
            time.sleep(_LOOK)
        end = running.result()
        if not end.completed and self._stop():  # Ctrl-C ends ``flwr run``, too
            raise Interrupted("stopped; what was finished is kept.")
        if not end.completed:
            raise NoisemarketError(problem or f"The ServerApp ended early: {end.status}.")

    def _note(self, event: Event) -> None:
        out = self.outcome
        match event:
            case Opened():
                self._signed, out.results = {}, []
            case Negotiated():
                self._negotiated = event
            case Signed():
                self._signed[event.owner] = event
            case LeftOut():
                out.left_out[event.owner] = event.reason
            case RoundTrained():
                out.results.append(event.result)
            case Paid():
                out.payments[event.owner] = event.amount
            case Broken():
                out.broken[event.owner] = str(event.evidence.get("reason", ""))
            case Settled():
                out.head = event.head

    def _fill_in(self) -> None:
        """The rest of the outcome, from what the job left in its folder."""
        out, environment, levels = self.outcome, self._environment, self._environment.levels
        made, deals = [], {}
        payments = [to_micro(float(value), "payment") for value in levels.payments]
        for place, name in enumerate(map(str, environment.population.names)):
            signed = self._signed.get(name)
            deal = Deal(name, 0.0, levels.sigma_max, 0)
            if signed is not None:
                deal = Deal(name, signed.saving, signed.sigma, signed.payment)
            made.append(deal)
            saving = int(np.abs(levels.savings - deal.saving).argmin())
            deals[place] = saving, payments.index(deal.payment)
        assert self._negotiated is not None
        out.deals = Deals(tuple(made), self._negotiated.agreed, self._negotiated.refused)
        played = agreement_of(deals, len(environment))
        out.negotiation = Negotiation(self._scenario, environment, played)
        sigma = np.array([deal.sigma for deal in made])
        out.order = order(self._scenario, environment, sigma)
        checkpoint = Checkpoint(self._folder.curator / CHECKPOINT, out.order.fingerprint)
        if (state := checkpoint.load()) is not None:
            out.results = list(state.results)
        account = read_journal(self._folder.curator / JOURNAL)
        out.statements = list(out.order.statements(account))
