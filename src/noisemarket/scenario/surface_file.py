"""Loss surfaces by name or by file: the paper's, those in the folder ``surfaces``, one's own.

A surface file is TOML with ``gamma`` (five numbers), ``zeta`` (two) and perhaps ``labels`` (a whole
number) and ``spread`` (two). Its tables say where the numbers come from and are not read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from noisemarket.errors import BadInput
from noisemarket.federated.aggregation import VERSION as RULE_VERSION
from noisemarket.federated.data_files import MNIST, PUBLIC, named_records
from noisemarket.files import read_text, toml_in
from noisemarket.game.levels import SURFACES, LossSurface

if TYPE_CHECKING:
    from noisemarket.scenario.schema import Scenario

_LARGEST = 1e30


def surface_names() -> list[str]:
    """The names that a scenario's ``surface`` may have."""
    return [*sorted(SURFACES), *sorted(_shipped())]


def find_surface(name: str) -> LossSurface:
    """The surface of that name, or in the file of that path."""
    if name in SURFACES:
        return SURFACES[name]
    shipped = _shipped()
    if name in shipped:
        return _parse(shipped[name].read_text(encoding="utf-8"), name)
    if _is_path(name):
        return read_surface(name)
    known = ", ".join(surface_names())
    raise BadInput("surface", name, f"choose one of: {known}; or give the path of a .toml file.")


def shipped_surfaces() -> dict[str, str]:
    """The texts of the surface files in the package, by name."""
    return {name: file.read_text(encoding="utf-8") for name, file in _shipped().items()}


def read_surface(file: str | Path) -> LossSurface:
    """The surface in a file."""
    return _parse(read_text("surface", file), str(file))


def surface_text(surface: LossSurface, more: Mapping[str, Any]) -> str:
    """The text of a surface file, with tables that say where the surface comes from."""
    numbers: dict[str, Any] = {"gamma": list(surface.gamma), "zeta": list(surface.zeta)}
    if surface.labels:
        numbers["labels"] = surface.labels
    if any(surface.spread):
        numbers["spread"] = list(surface.spread)
    return tomli_w.dumps(numbers | dict(more))


def anchored(name: str, base: Path | None) -> str:
    """A path, made absolute from the scenario's folder (or the current one); a name is kept."""
    if name in SURFACES or not _is_path(name) or name in _shipped():
        return name
    return str(((base or Path()) / name).absolute())


def _is_path(name: str) -> bool:
    return name.endswith(".toml") or "/" in name or "\\" in name


def _shipped() -> dict[str, Traversable]:
    folder = files("noisemarket.scenario") / "surfaces"
    found = (file for file in folder.iterdir() if file.name.endswith(".toml"))
    return {file.name.removesuffix(".toml"): file for file in found}


@lru_cache(maxsize=64)  # a scenario asks for its surface again and again; the file is long
def _parse(text: str, file: str) -> LossSurface:
    document = toml_in("surface", file, text)
    gamma, zeta = _numbers(document, "gamma", 5, file), _numbers(document, "zeta", 2, file)
    if gamma[2] <= 0.0:
        raise BadInput("surface", file, "its third gamma must be above 0.")
    labels = document.get("labels", 0)
    if type(labels) is not int or labels == 1 or not 0 <= labels <= _LARGEST:
        raise BadInput(
            "surface", file, "its labels must be a whole number above 1; it may be left out."
        )
    spread = _numbers(document, "spread", 2, file) if "spread" in document else [0.0, 0.0]
    if min(spread) < 0.0:
        raise BadInput("surface", file, "its spread must be two numbers of at least 0.")
    shape = (gamma[0], gamma[1], gamma[2], gamma[3], gamma[4])
    return LossSurface(shape, (zeta[0], zeta[1]), labels, (spread[0], spread[1]))


def _numbers(document: Mapping[str, Any], name: str, count: int, file: str) -> list[float]:
    values = document.get(name)
    if isinstance(values, list) and len(values) == count:
        plain = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(plain) == count and all(math.isfinite(v) and abs(v) <= _LARGEST for v in plain):
            return [float(value) for value in plain]
    raise BadInput("surface", file, f"it needs {name} = [...] with {count} finite numbers.")


def fingerprint(scenario: Scenario, data: str) -> str:
    """Digest of the job: all that accuracy depends on besides noise, beta and seed.

    ``data`` is the SHA-256 of the data; public data counts by its name. How privacy is counted does
    not matter, nor do paths.
    """
    people, file, name = scenario.population, scenario.population.file, scenario.training.data
    sizes: object = people.data_size
    if file and not named_records(name):  # where owners are named, the data says it
        sizes = scenario.environment(secrets=False).population.data_size.tolist()
    trained = {"protection", "settings", "clip", "records_per_shard", "shard_rate"}
    document = {
        "training": scenario.training.model_dump(mode="json", exclude={"data"}),
        "privacy": scenario.privacy.model_dump(mode="json", include=trained),
        "owners": people.owners,
        "data_size": sizes,
        "sigma_max": scenario.game.sigma_max,
        "data": (name or MNIST) if name in PUBLIC else data,
        "rule": RULE_VERSION,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
