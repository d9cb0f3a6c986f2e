"""A whole market inside a ServerApp: what an app's ``main`` calls.

Events are printed and kept in the job's folder, where the dashboard reads them. Run again on the
same folder, a job resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.flower.flower_channel import Bounds, FlowerChannel
from noisemarket.flower.host_files import curator_path
from noisemarket.ledger.money import UNITS
from noisemarket.ledger.money import in_words as money
from noisemarket.market.events import (
    EVENTS,
    FAILED,
    Accused,
    Broken,
    Event,
    EventFile,
    LeftOut,
    Negotiated,
    Opened,
    Paid,
    RoundTrained,
    Settled,
)
from noisemarket.market.job import run_market
from noisemarket.market.orders import prepare
from noisemarket.market.outcome import MarketOutcome
from noisemarket.market.run_folder import MarketFolder
from noisemarket.scenario import Scenario, load_scenario

if TYPE_CHECKING:
    from flwr.serverapp import Grid


def market_over_flower(
    grid: Grid, config: Mapping[str, Any], show: Callable[[str], None] = print
) -> MarketOutcome:
    """Run the market that an app's run config names.

    Args:
        grid: Flower's, of the ServerApp.
        config: names in the curator's folder (``curator_path``): ``scenario`` is a file,
            ``folder`` where the job is kept, ``curator-folder`` where the curator's key is, if it
            has one for all its jobs, ``houses`` a list of SuperNodes with several owners.
            ``timeout``, ``wait`` and ``insecure`` are those of ``Bounds``.
        show: is told what happens, in words.

    Returns:
        What the job came to.

    Example:
        @app.main()
        def main(grid: Grid, context: Context) -> None:
            market_over_flower(grid, context.run_config)
    """
    for name in ("scenario", "folder"):
        if not config.get(name):
            raise BadInput(name, "", f"name it: flwr run ... --run-config '{name}=\"...\"'.")
    names = ("scenario", "folder", "curator-folder", "houses")
    paths = {name: curator_path(name, str(config[name])) for name in names if config.get(name)}
    scenario = load_scenario(paths["scenario"])
    if scenario.training.model == "cnn":
        import_module("torch")  # first and here, so that nothing imports it from two threads
    bounds = Bounds(
        timeout=float(config.get("timeout", 600.0)),
        wait=float(config.get("wait", 120.0)),
        insecure=config.get("insecure", False) is True,
    )
    own, houses = paths.get("curator-folder"), paths.get("houses")
    return hold_market(grid, scenario, paths["folder"], show, bounds, own, houses)


def hold_market(
    grid: Grid,
    scenario: Scenario,
    path: Path,
    show: Callable[[str], None] = print,
    bounds: Bounds | None = None,
    curator: Path | None = None,
    houses: Path | None = None,
) -> MarketOutcome:
    """Run a scenario's market, which need not say what only owners know, with the owners of a grid.

    ``path`` is the job's folder, ``curator`` that of the curator's key, by default one for this job
    alone. ``houses`` is a file that lists which SuperNodes serve several owners, if any do.
    """
    folder = MarketFolder(path)
    folder.prepare()
    try:
        market = prepare(scenario, secrets=False)
    except NoisemarketError as problem:
        with EventFile(folder.curator / EVENTS) as file:
            file.write(FAILED, problem=str(problem))
        raise
    names = [str(name) for name in market.environment.population.names]
    channel = FlowerChannel(grid, names, folder, bounds, houses)
    run = run_market(market, path, channel=channel, curator=curator or folder.curator)
    for event in run:
        if words := in_words(event, scenario.market.currency):
            show(words)
    return run.outcome


def in_words(event: Event, currency: str = UNITS) -> str:
    """An event in words; nothing for those that are too many."""
    match event:
        case Opened():
            again = " goes on" if event.resumed else ""
            return f"Job {event.job}{again}: {event.owners} owners, {event.rounds} rounds."
        case LeftOut():
            return f"Owner {event.owner} is left out: {event.reason}."
        case Negotiated():
            return (
                f"Negotiated with {event.owners} owners in {event.seconds:.1f} s: {event.agreed} "
                f"trades for {money(event.total, currency)} at most."
            )
        case RoundTrained():
            result = event.result
            return (
                f"Round {result.number} of {event.rounds}: accuracy {result.score.accuracy:.1f} %, "
                f"{result.owners} owners, {result.seconds:.1f} s."
            )
        case Accused():
            return f"Owner {event.owner}, round {event.round}: {event.reason}; refused."
        case Paid():
            return f"Paid {money(event.amount, currency)} to {event.owner}."
        case Broken():
            return f"Owner {event.owner} broke its contract and is not paid."
        case Settled():
            return f"Settled. Ledger head: {event.head}"
        case _:
            return ""
