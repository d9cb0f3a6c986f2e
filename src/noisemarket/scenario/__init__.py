"""One frozen, validated object that defines a whole run; presets; TOML in and out."""

from noisemarket.scenario.load import PRESETS, SYMBOLS, dump_scenario, load_scenario
from noisemarket.scenario.schema import Scenario

__all__ = ["PRESETS", "SYMBOLS", "Scenario", "dump_scenario", "load_scenario"]
