"""What a resumed job goes on watching from: whole and of its own shape, or refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.market.common import events, played, scenario

from noisemarket.errors import BadInput
from noisemarket.files import load_arrays, save_arrays
from noisemarket.market.events import RoundTrained
from noisemarket.market.inspection import restore_arrays
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.training

SHAPES = {"seen": ((2,), np.int64), "sums": ((2, 3), np.float32)}


def test_nothing_kept_is_zero_and_what_is_kept_is_taken_as_it_is() -> None:
    new = restore_arrays({"other": np.ones(3)}, SHAPES)
    assert {name: (one.shape, one.dtype) for name, one in new.items()} == {
        name: (shape, np.dtype(kind)) for name, (shape, kind) in SHAPES.items()
    }
    assert not any(one.any() for one in new.values())
    kept = {name: np.ones(shape, kind) for name, (shape, kind) in SHAPES.items()}
    assert restore_arrays(kept, SHAPES)["sums"] is kept["sums"]


@pytest.fixture(scope="module")
def made(images: Path) -> Scenario:
    given = {"owners": 2, "rounds": 3}
    return scenario(images, **given)


@pytest.fixture(scope="module")
def half(made: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was cut off after its first round."""
    folder = tmp_path_factory.mktemp("half") / "run"
    stream = events(made, folder)
    assert any(isinstance(event, RoundTrained) for event in stream)
    stream.close()
    return folder


def wider(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, array], axis=-1)


def infinite(array: np.ndarray) -> np.ndarray:
    return np.full_like(array, np.inf)


@pytest.mark.parametrize("name", ["seen", "curves", "bits", "filled", "sums"])
def test_a_checkpoint_of_another_shape_is_refused_before_a_round(
    made: Scenario, half: Path, tmp_path: Path, name: str
) -> None:
    run = Path(shutil.copytree(half, tmp_path / "run"))
    path, journal = run / "curator/checkpoint.npz", run / "owners/privacy.journal"
    kept, charged = load_arrays(path), journal.read_bytes()
    saved: dict[str, Any] = {**kept}
    array = saved[f"kept-{name}"]
    said = {
        "is not ": wider(array),
        "is missing": None,
        **({"not finite": infinite(array)} if array.dtype.kind == "f" else {}),
    }
    for what, other in said.items():
        changed = {n: a for n, a in saved.items() if n != f"kept-{name}"}
        if other is not None:
            changed[f"kept-{name}"] = other
        save_arrays(path, **changed)
        with pytest.raises(BadInput, match=f"checkpoint {name} .*{what}.*put the checkpoint"):
            played(made, run)
    assert journal.read_bytes() == charged


def test_a_checkpoint_without_any_of_them_is_refused(
    made: Scenario, half: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(half, tmp_path / "run"))
    path = run / "curator/checkpoint.npz"
    saved: dict[str, Any] = load_arrays(path)
    save_arrays(path, **{name: one for name, one in saved.items() if "kept-" not in name})
    with pytest.raises(BadInput, match="checkpoint kept arrays are missing"):
        played(made, run)
    extra = str(saved["extra"])
    for damage in (
        extra.replace('"sketch_seed": ', '"sketch_seed": 0.5, "x": '),
        extra.replace('"tested": {', '"tested": {"a": 1, '),
    ):
        assert damage != extra
        save_arrays(path, **{**saved, "extra": np.array(damage)})
        with pytest.raises(BadInput, match=r"checkpoint (sketch_seed|inspection) "):
            played(made, run)
