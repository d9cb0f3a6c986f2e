"""The market itself: negotiate, sign, train under contract, aggregate, verify and pay.

``run`` is one generator of ``events``; everything that watches, records or draws reads that stream.
"""

from __future__ import annotations

from noisemarket.market.job import MarketOutcome, check, run

__all__ = ["MarketOutcome", "check", "run"]
