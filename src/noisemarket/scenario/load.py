"""Reading and writing scenarios: TOML files, ``--set key=value``, and errors with a remedy."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from noisemarket.errors import BadInput
from noisemarket.federated.data_files import PUBLIC, named_records
from noisemarket.files import parse_toml, read_text, toml_in
from noisemarket.scenario.explain import in_plain_words, key_paths, unknown_key
from noisemarket.scenario.population_file import read_owners
from noisemarket.scenario.schema import SYMBOLS, Scenario
from noisemarket.scenario.surface_file import anchored

PRESETS: dict[str, dict[str, object]] = {
    # Contracts that bind payment to saving, and a privacy loss of the right sign: the defaults.
    "market": {},
    # As printed, for reproduction: both sides move at once, first Q-values of 0. The model is a
    # network of the widths that such papers use, and nothing helps it against the noise.
    "paper": {
        "payoff": "printed",
        "surface": "printed",
        "protocol": "simultaneous",
        "optimism": 0.0,
        "learning_rate": 0.1,
        "reopen": False,
        "protection": "paper",
        "model": "cnn",
        "weighting": "equal",
        "widths": (16, 32, 128),
        "network": "plain",
        "server": "plain",
    },
    # Real owners with their own records: 51 US states, persons in fatal crashes.
    "fars": {"data": "fars"},
}


def load_scenario(
    file: str | Path | None = None,
    *,
    preset: str | None = None,
    settings: Sequence[str] | Mapping[str, object] = (),
) -> Scenario:
    """Read a scenario from a file or a preset, with settings on top.

    ``file`` is TOML and needs to give only what differs from its preset; ``preset`` wins over the
    file's. ``settings`` are ``"key=value"`` strings or a mapping. A key is a field's name
    ("discount"), its full path ("learning.discount") or the paper's symbol ("K").

    Example:
        >>> import noisemarket as nm
        >>> nm.load_scenario(preset="paper", settings=["owners=50"]).population.owners
        50
    """
    document: dict[str, Any] = {}
    if file is not None:
        document = toml_in("scenario", file, read_text("scenario", file))
    given = settings if isinstance(settings, Mapping) else dict(map(_split, settings))
    name = preset or str(document.get("preset", "market"))
    return build(name, document, given, base=Path(file).parent if file is not None else None)


def build(
    preset: str,
    document: Mapping[str, Any],
    settings: Mapping[str, object],
    base: Path | None = None,
) -> Scenario:
    """Apply a document and settings to a preset, and validate the result."""
    preset = str(settings.get("preset", preset))
    if preset not in PRESETS:
        close = "".join(difflib.get_close_matches(preset, PRESETS, n=1))
        meant = f"did you mean {close}? If not, " if close else ""
        raise BadInput("preset", preset, f"{meant}choose one of: {', '.join(PRESETS)}.")
    tree: dict[str, Any] = {"preset": preset}
    for given in (PRESETS[preset], document, settings):
        for key, value in given.items():
            _put(tree, key, value)
    tree["preset"] = preset
    _anchor_file(tree, base)
    if isinstance(tree.get("jobs"), list | tuple):
        tree["jobs"] = [_job(number, job, base) for number, job in enumerate(tree["jobs"], start=1)]
    scenario = _validated(tree)
    jobs_of(scenario)  # what is wrong with any of them shows now
    return scenario


def jobs_of(scenario: Scenario) -> list[tuple[str, Scenario]]:
    """The jobs of a season, each with its name; none for a scenario of one job."""
    whole, jobs = scenario.model_dump(exclude={"jobs"}), list[tuple[str, Scenario]]()
    for number, job in enumerate(scenario.jobs, start=1):
        tree = {
            key: whole[key] | value if isinstance(whole[key], dict) else value
            for key, value in job.items()
            if key != "name"
        }
        try:
            jobs.append((str(job.get("name", number)), _validated(whole | tree)))
        except BadInput as problem:
            field = f"{problem.field} of job {number}"
            raise BadInput(field, problem.value, problem.remedy) from None
    return jobs


def _job(number: int, job: object, base: Path | None) -> dict[str, Any]:
    """A job of a season with every setting in its table."""
    tree: dict[str, Any] = {}
    for key, value in job.items() if isinstance(job, Mapping) else [("jobs", job)]:
        if key in ("preset", "jobs"):
            raise BadInput(f"jobs: {key}", value, f"job {number} cannot change it: remove it.")
        if key == "name":
            tree["name"] = value
        else:
            _put(tree, key, value)
    _anchor_file(tree, base)
    return tree


def _validated(tree: Mapping[str, Any]) -> Scenario:
    try:
        return Scenario.model_validate(tree)
    except ValidationError as problem:
        raise in_plain_words(problem) from None


def dump_scenario(scenario: Scenario) -> str:
    """Write a scenario as TOML, with every field, for ``load_scenario``.

    Example:
        >>> import noisemarket as nm
        >>> print(nm.dump_scenario(nm.Scenario.from_preset("market", seed=7)))  # doctest: +ELLIPSIS
        preset = "market"
        mechanism = "dypp"
        seed = 7
        ...
    """
    return tomli_w.dumps(scenario.model_dump(mode="json"))


def _split(setting: str) -> tuple[str, object]:
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise BadInput("setting", setting, "write it as key=value.")
    try:
        value: object = parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    return key.strip(), value


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Put a value where its key belongs; tables are merged."""
    paths = key_paths()
    found, rest = key, ""
    while found not in paths:
        found, dot, last = found.rpartition(".")
        if not dot:
            raise unknown_key(key, value)
        rest = f"{last}.{rest}" if rest else last
    path = (*paths[found], *(rest.split(".") if rest else ()))
    is_table = any(len(other) > 1 and (other[0],) == path for other in paths.values())
    if is_table and isinstance(value, Mapping):
        for inner, inner_value in value.items():
            full = f"{found}.{SYMBOLS.get(inner, inner)}"
            if full not in paths:
                raise unknown_key(full, inner_value)
            _put(tree, full, inner_value)
        return
    node = tree
    for step in path[:-1]:
        below = node.get(step)
        if not isinstance(below, dict):
            below = dict(_default(path[: path.index(step) + 1]))
        node[step] = below
        node = below
    node[path[-1]] = value


def _default(path: tuple[str, ...]) -> Mapping[str, Any]:
    """The default below a path: ``privacy_cost.high=3`` changes one end of the default range."""
    value: Any = Scenario()
    for step in path:
        value = getattr(value, step) if isinstance(value, BaseModel) else {}
    return value if isinstance(value, Mapping) else {}


def _anchor_file(tree: dict[str, Any], base: Path | None) -> None:
    """Make paths absolute from the scenario's folder, and count the owners of a file."""
    game = tree.get("game")
    if isinstance(game, dict) and isinstance(game.get("surface"), str):
        game["surface"] = anchored(game["surface"], base)
    training = tree.get("training")
    if isinstance(training, dict) and training.get("data") and isinstance(training["data"], str):
        if training["data"] not in PUBLIC:
            training["data"] = str(((base or Path()) / training["data"]).absolute())
        people = tree.setdefault("population", {})
        if isinstance(people, dict) and "owners" not in people:
            people |= {"owners": len(named)} if (named := named_records(training["data"])) else {}
    population = tree.get("population")
    if not isinstance(population, dict) or not population.get("file"):
        return
    population["file"] = str((base or Path()) / str(population["file"]))
    if "owners" not in population:
        population["owners"] = len(read_owners(population["file"]))
