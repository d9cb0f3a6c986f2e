"""What ``run --engine`` can name: where the owners of a market are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from noisemarket.market.job import run_market
from noisemarket.market.outcome import MarketRun
from noisemarket.market.preparation import PreparedMarket
from noisemarket.pricing.mechanism import Progress

EMBEDDED, FLOWER = "embedded", "flower"


@dataclass(frozen=True)
class RunSettings:
    """How to run a market, and who is told how it goes."""

    watch: Callable[[Progress], None]
    stop: Callable[[], bool]
    workers: int | None = None
    threads: int | None = None


def embedded(market: PreparedMarket, folder: Path, settings: RunSettings) -> MarketRun:
    """All owners on this machine, trained by worker processes."""
    return run_market(
        market, folder, workers=settings.workers, threads=settings.threads,
        watch=settings.watch, stop=settings.stop,
    )  # fmt: skip


def flower(market: PreparedMarket, folder: Path, settings: RunSettings) -> MarketRun:
    """All owners over Flower's simulation on this machine."""
    from noisemarket.flower import need_flower

    need_flower()
    from noisemarket.flower.simulation import run_simulation

    return run_simulation(
        market, folder, workers=settings.workers, watch=settings.watch, stop=settings.stop
    )


ENGINES = {EMBEDDED: embedded, FLOWER: flower}
