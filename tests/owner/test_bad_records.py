"""Records that an owner cannot train on: it declines in one sentence, before it signs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.ledger.common import contract

from noisemarket.federated.models import maker_of
from noisemarket.owner.folder import Declined, OwnerFolder
from noisemarket.owner.round import OwnRound

PLAN = {"index": 0, "seed": 0, "model": {"kind": "linear", "classes": 3, "dimension": 4}}


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (np.zeros((0, 4), "f4"), "no records"),
        (np.ones((5, 4), "f4"), "longer than 1"),
        (np.full((5, 4), np.nan, "f4"), "longer than 1"),
    ],
)
def test_bad_records_are_declined(features: np.ndarray, said: str, tmp_path: Path) -> None:
    folder = OwnerFolder("anna", tmp_path)
    folder.keep_records(features, np.zeros(len(features), np.int64))
    terms = contract("anna", protection="per_record", settings={"rate": 8.0})
    with pytest.raises(Declined, match=said):
        OwnRound(folder, terms, PLAN, maker_of)


@pytest.mark.parametrize("model", [PLAN["model"], {"channels": [2, 2], "side": 16, "classes": 3}])
@pytest.mark.parametrize("label", [3, -1])
def test_a_class_that_the_model_does_not_have_is_declined(
    model: dict[str, object], label: int, tmp_path: Path
) -> None:
    """Else it would fail in every round, after the charge, and tell so each time."""
    folder, shape = OwnerFolder("anna", tmp_path), (2, 4) if "kind" in model else (2, 1, 16, 16)
    folder.keep_records(np.zeros(shape, "f4"), np.array([0, label]))
    terms = contract("anna", protection="per_record", settings={"rate": 8.0})
    with pytest.raises(Declined, match="classes that the model does not have"):
        OwnRound(folder, terms, {**PLAN, "model": model}, maker_of)


def test_an_owner_of_one_record_can_train(tmp_path: Path) -> None:
    folder = OwnerFolder("anna", tmp_path)
    folder.keep_records(np.array([[0.6, 0.8, 0.0, 0.0]], "f4"), np.zeros(1, np.int64))
    terms = contract("anna", protection="per_record", settings={"rate": 8.0})
    mine = OwnRound(folder, terms, PLAN, maker_of)
    assert mine.budget.sensitivity == pytest.approx(2.0, rel=1e-5)
