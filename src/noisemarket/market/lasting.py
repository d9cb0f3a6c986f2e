"""Owners that outlive a run: a folder each, with key, private numbers, wallet and contracts.

They are those of Flower's hosts, in one folder on this machine. What an owner has written down
counts, not what the scenario draws for it. What is left in its wallet is a floor of its noise: it
sells nothing, and takes no part in a job, that its budget does not cover, nor in one that asks for
more than it allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.files import private_folder, write_json
from noisemarket.formats import few
from noisemarket.game.environment import Environment
from noisemarket.game.sides import SLACK
from noisemarket.market.orders import Order, PreparedMarket, more_saving
from noisemarket.market.outcome import MarketOutcome
from noisemarket.market.run_folder import LASTING, MarketFolder
from noisemarket.owner.agent import BELOW_FLOOR, KEEPS_MORE
from noisemarket.owner.folder import Declined, OwnerFolder, digest_of, owner_folder
from noisemarket.owner.simulated import SimulatedOwner, preferences
from noisemarket.owner.wallet import Wallet
from noisemarket.pricing.rule import seeds
from noisemarket.privacy.zcdp import sigma_for_rho

_OWN = ("privacy_cost", "markup", "floor")


def own_numbers(market: PreparedMarket) -> Iterator[dict[str, Any]]:
    """What a scenario says of each owner, as ``private.json`` holds it."""
    scenario, environment = market.scenario, market.environment
    privacy, floors = scenario.privacy, environment.population.floor
    if math.isfinite(market.order.budgets[0].rho_cap):  # which has raised the floors of this job
        floors = scenario.environment().population.floor
    budgets = {"rho_budget": privacy.rho_budget, "epsilon_budget": privacy.epsilon_budget}
    for index, floor in enumerate(floors.tolist()):
        yield {
            "changes": [],
            **preferences(environment, index, seeds(scenario.play_seed())[0]),
            "floor": floor,
            **{name: value for name, value in budgets.items() if value > 0.0},
            "budget_delta": privacy.delta,
            "neighbours": privacy.neighbours,
        }


def records_of(market: PreparedMarket, index: int) -> str:
    """The digest of the records that an owner holds here, whatever the model makes of them."""
    data, held = market.order.job.data, market.order.job.partition.indices[index]
    return digest_of(data.train_images[held], data.train_labels[held])


def with_lasting_owners(
    market: PreparedMarket, folder: MarketFolder, root: Path, *, renew: bool = False
) -> tuple[PreparedMarket, list[SimulatedOwner]]:
    """The owners in ``root``, new ones with the scenario's numbers (with ``renew`` all), and the
    market with what they have written down. A resumed job has the floors that it began with."""
    scenario, environment, order = market.scenario, market.environment, market.order
    for path in (root, folder.path, folder.owners):
        private_folder(path)
    known: Mapping[str, float] = {}
    by_wallet = dict[str, float]()  # of the floors, those that are what a wallet has left
    if (kept := folder.owners / LASTING).exists():
        before = json.loads(kept.read_text(encoding="utf-8"))
        known, by_wallet = before["floors"], before["by_wallet"]
    dimension, sigma_max = order.job.first_weights().size, scenario.game.sigma_max
    owners, floors = list[SimulatedOwner](), dict[str, float]()
    columns: dict[str, list[float]] = {name: [] for name in _OWN}
    names = map(str, environment.population.names)
    for index, (name, numbers) in enumerate(zip(names, own_numbers(market), strict=True)):
        own_folder = OwnerFolder(name, private_folder(owner_folder(root, name)))
        own_folder.keep_private(numbers, renew=renew)
        own = own_folder.private()
        wallet = Wallet(own_folder.path, name, records_of(market, index))
        owner = SimulatedOwner(own_folder, own, wallet)
        preferred = owner.preferences()
        if name in known:
            least = float(known[name])
        else:
            size = int(order.job.partition.sizes[index])
            relation = own_folder.neighbours()
            sensitivity = order.job.protection.sensitivity(dimension, size, relation)
            allowed = min(owner.allowed(), order.budgets[index].rho_cap)
            least = sigma_for_rho(sensitivity, allowed / order.plan.rounds)
            wallets = allowed < min(owner.limits()[0], order.budgets[index].rho_cap)
            if wallets and math.isfinite(least):
                by_wallet[name] = least
            least = max(owner.own_noise("floor"), least)
        if name not in known or least > sigma_max * (1.0 + SLACK):
            owner.refuses = _refusal(owner, order, dimension, sigma_max, least)
        floors[name] = 2.0 * sigma_max if owner.refuses else least
        owners.append(owner)
        # what it weighs money and privacy by, in the measure of this game
        weight = preferred["privacy_weight"] / (environment.privacy_weight or math.inf)
        value = environment.payment_value / max(preferred["payment_value"], 1e-9)
        columns["privacy_cost"].append(preferred["privacy_cost"] * weight * value)
        columns["markup"].append(preferred["markup"])
        columns["floor"].append(min(floors[name], sigma_max))
    document = {"folder": str(root.absolute()), "floors": floors, "by_wallet": by_wallet}
    write_json(kept, document, private=True)
    told = _told(environment, {name: np.array(values) for name, values in columns.items()})
    return replace(market, environment=told), owners


def budgets_said(outcome: MarketOutcome, folder: MarketFolder, root: Path) -> list[str]:
    """Whose wallet let it sell no more in this job, and whose budget is not the scenario's."""
    scenario, levels = outcome.negotiation.scenario, outcome.negotiation.environment.levels
    out, by_wallet = list[str](), dict[str, float]()
    if (kept := folder.owners / LASTING).exists():
        by_wallet = json.loads(kept.read_text(encoding="utf-8"))["by_wallet"]
    held = [
        row.owner
        for row in outcome.owners
        if row.owner in by_wallet
        and levels.sigma_left(more_saving(scenario, levels, row.saving_level))
        < by_wallet[row.owner] * (1.0 - SLACK)
    ]
    if held:
        out.append(f"{len(held)} of {len(outcome.owners)} owners' wallets allow no more: ")
        out[0] += f"{few(held)}."
    for name in ("rho_budget", "epsilon_budget"):
        value = getattr(scenario.privacy, name)
        folders = (OwnerFolder(row.owner, owner_folder(root, row.owner)) for row in outcome.owners)
        if value and (own := [one.name for one in folders if one.private().get(name) != value]):
            out.append(
                f"{len(own)} of {len(outcome.owners)} owners keep a budget of their own, not "
                f"{name}={value:g}: {few(own)}. To change it, edit private.json in an owner's "
                f"folder in {root}."
            )
    return out


def _refusal(
    owner: SimulatedOwner, order: Order, dimension: int, sigma_max: float, least: float
) -> str:
    """Why an owner takes no part in a job, if it does not."""
    try:
        owner.check_job(order.plan.rounds, order.job.protection, dimension)
    except Declined as problem:
        return str(problem)
    most = sigma_max * (1.0 + SLACK)
    for name, why in (("sigma_max", KEEPS_MORE), ("floor", BELOW_FLOOR)):
        if owner.own_noise(name) > most:
            return why
    return owner.why_dry() if least > most else ""


def _told(environment: Environment, own: Mapping[str, Any]) -> Environment:
    """The game with what owners say of themselves; what the scenario changes later stays."""
    first = environment.phases[0]
    phases = [
        replace(
            phase,
            **{
                name: np.where(
                    getattr(phase, name) == getattr(first, name), own[name], getattr(phase, name)
                )
                for name in ("privacy_cost", "markup")
            },
        )
        for phase in environment.phases
    ]
    population = replace(environment.population, **own)
    return replace(environment, population=population, phases=tuple(phases))
