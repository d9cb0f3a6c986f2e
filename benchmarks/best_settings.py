"""The settings with which each mechanism does best: typed in examples/campaign.toml alone."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

CAMPAIGN = Path(__file__).parent.parent / "examples" / "campaign.toml"
COMPARED: list[dict[str, Any]] = tomllib.loads(CAMPAIGN.read_text(encoding="utf-8"))["compared"]
BEST: dict[str, dict[str, Any]] = {one["mechanism"]: one["settings"] for one in COMPARED}
"""Learning settings, and the surface that a mechanism plays on."""


def learning(mechanism: str) -> dict[str, Any]:
    """The learning settings alone (docs/explanation/learning.md has the sweep for them)."""
    return {name: value for name, value in BEST[mechanism].items() if name != "surface"}
