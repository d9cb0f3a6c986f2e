"""One frozen, validated object that defines a whole run; presets; TOML in and out."""

from noisemarket.scenario.load import PRESETS, dump_scenario, load_scenario
from noisemarket.scenario.schema import SYMBOLS, Scenario

__all__ = ["PRESETS", "SYMBOLS", "Scenario", "dump_scenario", "load_scenario"]
