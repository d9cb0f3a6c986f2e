"""What ``run --engine`` can name: the engines of this package, and those of a user's own package.

A package adds one through an entry point of the group ``noisemarket.engines``. It names a subclass
of ``Engine`` that is made from a ``Job``, or a function that runs a whole market and is called as
``embedded`` is here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from noisemarket.federated.engine import Engine
from noisemarket.market.job import run_market
from noisemarket.market.outcome import MarketRun
from noisemarket.market.preparation import PreparedMarket
from noisemarket.pricing.mechanism import Progress
from noisemarket.registry import Registry

EMBEDDED, FLOWER = "embedded", "flower"
GROUP = "noisemarket.engines"


@dataclass(frozen=True)
class RunSettings:
    """How to run a market, and who is told how it goes."""

    watch: Callable[[Progress], None]
    show: Callable[[str], None]
    stop: Callable[[], bool]
    workers: int | None = None
    threads: int | None = None
    tls: bool = True
    runtime: str | None = None


Starter = Callable[[PreparedMarket, Path, RunSettings], MarketRun]


def embedded(
    market: PreparedMarket, folder: Path, settings: RunSettings, engine: type[Engine] | None = None
) -> MarketRun:
    """All owners on this machine, trained by worker processes."""
    return run_market(
        market, folder, engine=engine, workers=settings.workers, threads=settings.threads,
        watch=settings.watch, stop=settings.stop,
    )  # fmt: skip


def flower(market: PreparedMarket, folder: Path, settings: RunSettings) -> MarketRun:
    """All owners over Flower on this machine: each a SuperNode, or simulated."""
    from noisemarket.flower import need_flower

    need_flower()
    from noisemarket.flower.deploy.single_machine import run_on_flower

    return run_on_flower(
        market, folder, tls=settings.tls, runtime=settings.runtime, watch=settings.watch,
        stop=settings.stop, show=settings.show,
    )  # fmt: skip


def start(engine: str, market: PreparedMarket, folder: Path, settings: RunSettings) -> MarketRun:
    """Run a market by the engine of this name."""
    part = ENGINES.find(engine)
    if isinstance(part, type):
        return embedded(market, folder, settings, part)
    return part(market, folder, settings)


def _check(part: Starter | type[Engine]) -> None:
    if not (issubclass(part, Engine) if isinstance(part, type) else callable(part)):
        raise TypeError("give a subclass of Engine, or a function that runs a market")


def find_engines() -> Registry[Starter | type[Engine]]:
    """The engines of this package, and those of all that is installed now."""
    return Registry("--engine", GROUP, {EMBEDDED: embedded, FLOWER: flower}, _check)


ENGINES = find_engines()
