"""What one side knows of the other: nothing but what was said. Objects, files, ledger, events."""

from __future__ import annotations

import gc
import json
import sqlite3
import struct
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.market.common import events, scenario

from noisemarket.ledger.store import Ledger
from noisemarket.market.events import RoundTrained
from noisemarket.market.inspection import UploadInspector
from noisemarket.market.offers import ReceiptBook
from noisemarket.owner.simulated import SimulatedOwner
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.training

COSTS = {"a": 1.7654321, "b": 2.7351462, "c": 3.8162735}
MARKUPS = {"a": 0.1357911, "b": 0.2468351, "c": 0.3792846}
WEIGHTS = {"quality_weight": 0.6182934, "quality_value": 0.2083716, "payment_cost": 0.1294857}
OWN = {name: [COSTS[name], MARKUPS[name]] for name in COSTS}
KINDS = (ReceiptBook, UploadInspector, SimulatedOwner, Ledger)
ALL_OWN = [value for values in OWN.values() for value in values]


def made(images: Path, folder: Path) -> Scenario:
    rows = "".join(f"{name},{COSTS[name]},30,1,{MARKUPS[name]}\n" for name in COSTS)
    (folder / "people.csv").write_text("owner,privacy_cost,data_size,beta,markup\n" + rows)
    given = {"file": str(folder / "people.csv"), "owners": 3, "rounds": 2, **WEIGHTS}
    return scenario(images, noise="secure", **given)


def reachable(start: Any) -> Iterator[Any]:
    """All values that an object leads to, by attributes, containers and closures.

    Not by way of classes, modules and a function's globals: these are the same for everybody.
    """
    waiting, seen, kept = [start], set(), []
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType):
            continue
        seen.add(id(one))
        kept.append(one)  # so that no other object takes over its id
        yield one
        if isinstance(one, types.FunctionType):
            waiting += [cell.cell_contents for cell in one.__closure__ or ()]
            waiting += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
        elif isinstance(one, types.MethodType):
            waiting += [one.__self__, one.__func__]
        else:
            waiting += gc.get_referents(one)


def holds(value: Any, secrets: list[float]) -> bool:
    if isinstance(value, float):
        return any(abs(value - secret) < 1e-9 for secret in secrets)
    if isinstance(value, str):
        return any(repr(secret)[2:] in value for secret in secrets)
    if isinstance(value, bytes | bytearray):
        return any(pattern in value for secret in secrets for pattern in patterns(secret))
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return any((np.abs(value - secret) < 1e-6).any() for secret in secrets)
    return False


def patterns(secret: float) -> list[bytes]:
    """How a number may stand in a file: as text, or in binary."""
    digits = repr(secret)[2:].encode()
    return [digits, *(struct.pack(form, secret) for form in ("<d", ">d", "<f", ">f"))]


def found(folder: Path, secrets: list[float]) -> list[str]:
    """The files below a folder that hold one of these."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if holds(path.read_bytes(), secrets)]


def living(kind: type) -> list[Any]:
    return [one for one in gc.get_objects() if type(one) is kind]


@pytest.fixture(scope="module")
def seen(images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What objects, events and files hold, looked at in the middle of training and at the end."""
    folder = tmp_path_factory.mktemp("private")
    told, inside = [], {}
    gc.collect()
    others = {id(one): one for kind in KINDS for one in living(kind)}
    faults = [{"owner": "c", "kind": "zeros"}]
    run = events(made(images, folder), folder / "run", faults=faults)
    for event in run:
        told.append(event)
        if isinstance(event, RoundTrained) and not inside:
            for kind in KINDS:
                inside[kind] = [[*reachable(one)] for one in living(kind) if id(one) not in others]
    return {"folder": folder / "run", "events": told, "inside": inside, "outcome": run.outcome}


def test_the_search_finds_what_is_there(seen: dict[str, Any]) -> None:
    """Else the tests below could not fail."""
    assert any(holds(value, ALL_OWN) for value in reachable(seen["outcome"].negotiation))
    weights = [*WEIGHTS.values()]
    assert any(holds(value, weights) for value in reachable(seen["outcome"].negotiation))
    for name, own in OWN.items():
        assert found(seen["folder"] / "owners" / f"owner-{name}", own) == ["private.json"]
    assert holds(np.array([1.0, COSTS["a"]]), ALL_OWN)
    assert holds(np.float32(COSTS["a"]).tobytes(), ALL_OWN)
    assert [len(seen["inside"][kind]) for kind in KINDS] == [1, 1, 3, 1]
    assert all(len(values) > 3 for kinds in seen["inside"].values() for values in kinds)


@pytest.mark.parametrize("kind", [ReceiptBook, UploadInspector, Ledger])
def test_no_object_of_the_curator_leads_to_an_owners_secret(
    seen: dict[str, Any], kind: type
) -> None:
    for values in seen["inside"][kind]:
        assert not [value for value in values if holds(value, ALL_OWN)]


def test_no_object_of_an_owner_leads_to_the_curators_weights(seen: dict[str, Any]) -> None:
    for values in seen["inside"][SimulatedOwner]:
        (owner,) = (one for one in values if type(one) is SimulatedOwner)
        others = [v for name, own in OWN.items() if name != owner.folder.name for v in own]
        assert not [value for value in values if holds(value, [*WEIGHTS.values(), *others])]


def test_the_ledger_and_the_curators_folder_hold_no_secret(seen: dict[str, Any]) -> None:
    folder = seen["folder"]
    assert found(folder / "curator", ALL_OWN) == []
    assert not holds((folder / "ledger.sqlite").read_bytes(), [*ALL_OWN, *WEIGHTS.values()])
    with sqlite3.connect(folder / "ledger.sqlite") as database:
        dump = "\n".join(database.iterdump())
    database.close()
    assert "broken" in dump
    assert not holds(dump, [*ALL_OWN, *WEIGHTS.values()])
    assert not holds((folder / "market.json").read_bytes(), [*ALL_OWN, *WEIGHTS.values()])


def test_the_owners_folders_hold_no_weight_and_no_others_secret(seen: dict[str, Any]) -> None:
    owners = seen["folder"] / "owners"
    assert found(owners, [*WEIGHTS.values()]) == []
    for name in OWN:
        others = [v for other, own in OWN.items() if other != name for v in own]
        assert found(owners / f"owner-{name}", others) == []
    assert not holds((owners / "privacy.journal").read_bytes(), ALL_OWN)


def test_events_tell_nothing(seen: dict[str, Any]) -> None:
    secrets = [*ALL_OWN, *WEIGHTS.values()]
    for event in seen["events"]:
        assert not [value for value in reachable(event) if holds(value, secrets)]
        assert not holds(repr(event), secrets)
    private = json.loads((seen["folder"] / "owners/owner-a/private.json").read_text())
    assert private == {"privacy_cost": COSTS["a"], "markup": MARKUPS["a"], "floor": 0.0}
