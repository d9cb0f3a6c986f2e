"""A whole market inside a ServerApp: what an app's ``main`` calls.

What happens is printed, and written line by line to ``curator/events.jsonl`` of the job's folder,
for who watches from outside. Run again on the same folder, a job goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.flower.market import FlowerOwners
from noisemarket.flower.nodes import checked_at_once
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.money import MICRO
from noisemarket.market import MarketOutcome, run
from noisemarket.market.event_file import ENDED, EVENTS, FAILED, NEGOTIATING, note, to_line
from noisemarket.market.events import (
    Accused,
    Broken,
    Event,
    LeftOut,
    Negotiated,
    Opened,
    Paid,
    RoundTrained,
    Settled,
)
from noisemarket.market.folder import MarketFolder
from noisemarket.mechanisms.mechanism import Progress
from noisemarket.scenario import Scenario, load_scenario

if TYPE_CHECKING:
    from flwr.serverapp import Grid


def market_over_flower(
    grid: Grid, config: Mapping[str, Any], show: Callable[[str], None] = print
) -> MarketOutcome:
    """Run the market that an app's run config names.

    ``scenario`` is a file, ``folder`` where the job is kept, ``curator-folder`` where the curator's
    key is, if it has one for all its jobs; ``timeout``, ``grace``, ``wait``, ``at-once`` and
    ``insecure`` are those of ``FlowerOwners``.
    """
    for name in ("scenario", "folder"):
        if not config.get(name):
            raise BadInput(name, "", f"name it: flwr run ... --run-config '{name}=\"...\"'.")
    scenario = load_scenario(Path(str(config["scenario"])))
    bounds = {n: float(config[n]) for n in ("timeout", "grace", "wait") if n in config}
    key = str(config.get("curator-folder", ""))
    return hold_market(
        grid,
        scenario,
        Path(str(config["folder"])),
        show,
        curator=Path(key) if key else None,
        insecure=config.get("insecure", False) is True,
        at_once=checked_at_once(config.get("at-once", 0)),
        **bounds,
    )


def hold_market(
    grid: Grid,
    scenario: Scenario,
    path: Path,
    show: Callable[[str], None] = print,
    *,
    curator: Path | None = None,
    insecure: bool = False,
    at_once: int = 0,
    **bounds: float,
) -> MarketOutcome:
    """Run a scenario's market with the owners of a grid, in a folder.

    The curator's key is in the folder ``curator``, by default one of this job alone.
    """
    folder = MarketFolder(path)
    folder.prepare()
    key = KeyPair.obtain(curator or folder.curator)
    outcome = MarketOutcome()
    owners = FlowerOwners(grid, scenario, folder, key, insecure=insecure, at_once=at_once, **bounds)
    with (folder.curator / EVENTS).open("a", encoding="utf-8", buffering=1) as file:

        def watch(seen: Progress) -> None:
            file.write(note(NEGOTIATING, done=seen.done, total=seen.total))

        try:
            for event in run(
                scenario, path, owners=owners, curator=curator, outcome=outcome, watch=watch
            ):
                file.write(to_line(event))
                if words := told(event):
                    show(words)
        except NoisemarketError as problem:
            file.write(note(FAILED, problem=str(problem)))
            raise
        file.write(note(ENDED, seconds=outcome.seconds))
    return outcome


def told(event: Event) -> str:
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
                f"trades for {event.total / MICRO:.2f} at most."
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
            return f"Paid {event.amount / MICRO:.2f} to {event.owner}."
        case Broken():
            return f"Owner {event.owner} broke its contract and is not paid."
        case Settled():
            return f"Settled. Ledger head: {event.head}"
        case _:
            return ""
