"""Owners who join or leave between jobs: who stays is served as before, who joins is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from noisemarket.market.negotiation import AgreedContract, negotiate
from noisemarket.scenario import Scenario

COSTS = {"anna": 0.3, "bert": 0.35, "carl": 0.4, "dora": 0.5, "emil": 0.7, "fred": 0.45}
BEFORE = ["anna", "bert", "carl", "dora", "emil"]
AFTER = ["fred", "anna", "carl", "emil", "dora"]  # bert leaves, fred joins, in another order
ALONE = ["bisection", "dypp", "q_learning", "phc", "greedy", "equilibrium", "first_best"]
"""Mechanisms that serve each owner by itself."""


def contracts(folder: Path, names: list[str], mechanism: str) -> dict[str, AgreedContract]:
    file = folder / f"{'-'.join(names)}.csv"
    rows = "".join(f"{name},{COSTS[name]},600,1,0.2\n" for name in names)
    file.write_text("owner,privacy_cost,data_size,beta,markup\n" + rows)
    scenario = Scenario.from_preset(
        "market", file=str(file), surface="sharded-mnist", iterations=600
    )
    return {one.owner: one for one in negotiate(scenario, mechanism=mechanism).contracts}


@pytest.mark.compiled
@pytest.mark.parametrize("mechanism", ALONE)
def test_who_stays_gets_the_same_contract_and_who_joins_is_served(
    tmp_path: Path, mechanism: str
) -> None:
    before, after = (contracts(tmp_path, names, mechanism) for names in (BEFORE, AFTER))
    for name in set(BEFORE) & set(AFTER):
        assert after[name] == before[name]
    alone = contracts(tmp_path, ["fred"], mechanism)
    assert after["fred"] == alone["fred"]
    if mechanism in ("bisection", "equilibrium", "first_best"):
        assert after["fred"].saving > 0.0


@pytest.mark.compiled
@pytest.mark.parametrize("mechanism", ["bisection", "dypp"])
def test_all_but_one_may_leave(tmp_path: Path, mechanism: str) -> None:
    many = contracts(tmp_path, BEFORE, mechanism)
    for name in BEFORE:
        assert contracts(tmp_path, [name], mechanism)[name] == many[name]


@pytest.mark.compiled
def test_by_messages_too(tmp_path: Path) -> None:
    """The players of an owner are named by the owner, not by its place in a list."""
    found = []
    for names in (BEFORE, AFTER):
        file = tmp_path / f"{names[0]}.csv"
        rows = "".join(f"{name},{COSTS[name]},600,1,0.2\n" for name in names)
        file.write_text("owner,privacy_cost,data_size,beta,markup\n" + rows)
        scenario = Scenario.from_preset(
            "market", file=str(file), surface="sharded-mnist", iterations=600,
            interactions_per_message=60, window=100,
        )  # fmt: skip
        made = negotiate(scenario, mechanism="q_learning").contracts
        found.append({one.owner: (one.saving, one.payment) for one in made})
    stayed = set(BEFORE) & set(AFTER)
    assert {name: found[0][name] for name in stayed} == {name: found[1][name] for name in stayed}
    assert any(saving > 0.0 for saving, _ in found[0].values())
