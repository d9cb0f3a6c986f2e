"""The market itself: negotiate, sign, train under contract, aggregate, verify and pay.

``run_market`` gives one stream of ``events``; everything that watches, records or draws reads it.
"""

from __future__ import annotations

from noisemarket.market import events
from noisemarket.market.job import run_market
from noisemarket.market.outcome import MarketOutcome, MarketRun
from noisemarket.market.preparation import PreparedMarket, prepare

__all__ = ["MarketOutcome", "MarketRun", "PreparedMarket", "events", "prepare", "run_market"]
