"""A clock auction over a grid in this process: parity, secrecy, few messages, resumption."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message
from tests.flower.conftest import ProcessGrid
from tests.flower.job_ends import deals, job_of, own
from tests.flower.market_common import (
    MOST_ASKED,
    NAMES,
    dying,
    grid_of,
    hold,
    make_scenario,
    rubbish,
)
from tests.flower.overheard import Overheard
from tests.market.test_private import holds

from noisemarket.errors import BadInput
from noisemarket.flower.records import content, plain_of
from noisemarket.market.job import run_market
from noisemarket.owner.folder import SALE
from noisemarket.owner.invitations import SaleRecord
from noisemarket.owner.owner_messages import PriceQuestion
from noisemarket.scenario import Scenario

pytestmark = pytest.mark.process

COSTS = {"0": 0.4123457, "1": 0.6180341, "2": 2.9876543}
MARKUPS = {"0": 0.1357911, "1": 0.0777123, "2": 0.2468351}


def clock_scenario(folder: Path, **more: Any) -> Scenario:
    """Three owners with costs of their own: two might sell, the budget pays one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    floors = dict(zip(NAMES, str(more.pop("floors", "0,0,0")).split(","), strict=True))
    sizes = dict(zip(NAMES, str(more.pop("sizes", "30,30,30")).split(","), strict=True))
    rows = "".join(
        f"{name},{COSTS[name]},{sizes[name]},1,{MARKUPS[name]},{floors[name]}\n" for name in NAMES
    )
    people = folder.parent / "people.csv"
    people.write_text("owner,privacy_cost,data_size,beta,markup,floor\n" + rows)
    settings = {"mechanism": "clock", "file": str(people), "floor": 0.15, "payment_levels": 32,
                "budget": 15.0, "quality_value": 2.0, "privacy_cost": 1.0}  # fmt: skip
    return make_scenario(folder, **{**settings, **more})


def asked(grid: ProcessGrid) -> list[int]:
    """Whom each price went to."""
    sent = [one.metadata for one in grid.sent if one.metadata.message_type == PriceQuestion.kind]
    return [one.dst_node_id for one in sent]


def second_questions(grid: ProcessGrid) -> list[Message]:
    """The second question to each owner: the first is about the highest price for all."""
    found: dict[int, list[Message]] = {}
    for one in grid.sent:
        if one.metadata.message_type == PriceQuestion.kind:
            found.setdefault(one.metadata.dst_node_id, []).append(one)
    return [own[1] for own in found.values() if len(own) > 1]


def sold(folder: Path) -> dict[str, tuple[float, int]]:
    return {name: (one[0], one[2]) for name, one in deals(folder).items()}


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same market in one process."""
    folder = tmp_path_factory.mktemp("embedded") / "run"
    run_market(clock_scenario(folder), folder, workers=1).finish()
    return folder


def test_the_same_contracts_as_the_embedded_market_in_few_messages(
    embedded: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    grid = grid_of(scenario := clock_scenario(folder), folder)
    outcome = hold(grid, scenario, folder)
    assert deals(folder) == deals(embedded)
    traded = {name for name, (saving, _) in sold(folder).items() if saving > 0}
    assert traded == {"0"}
    assert 0 < sum(outcome.payments.values()) <= 15_000_000
    counts = Counter(asked(grid))
    assert max(counts.values()) <= MOST_ASKED
    assert counts[102] == 1, "who has left is not asked again"
    for number, name in enumerate(NAMES, start=100):
        record = SaleRecord.read(own(folder, name).job(job_of(folder)) / SALE)
        assert (record.left is None) == (name in traded)
        assert (record.stayed is not None) == (number != 102)


@pytest.mark.parametrize(
    "more",
    [
        {"budget": "none"},
        {"budget": 0.0},
        {"payoff": "epsilon_loss", "floor": 0.3},
        {"floors": "0.2,0.1,0"},
        {"sizes": "30,12,20", "budget": 20.0},
    ],
)
def test_parity_also_where_all_or_nobody_sells(tmp_path: Path, more: dict[str, Any]) -> None:
    here, there = tmp_path / "here" / "run", tmp_path / "there" / "run"
    run_market(clock_scenario(here, rounds=1, **more), here, workers=1).finish()
    grid = grid_of(scenario := clock_scenario(there, rounds=1, **more), there)
    hold(grid, scenario, there)
    assert deals(there) == deals(here)
    if {"payoff", "floors", "sizes"} & more.keys():
        assert {name for name, (saving, _) in sold(there).items() if saving > 0}
    if "sizes" in more:
        asked = [PriceQuestion.read(*plain_of(one.content)) for one in second_questions(grid)]
        prices = {one.price for one in asked}
        assert len(prices) > 1, "each is asked about a price of its own"


def test_winners_costs_are_nowhere_on_the_curators_side(tmp_path: Path) -> None:
    """Not in a message, on the ledger, or in the curator's folder; nor are its own weights said."""
    folder = tmp_path / "run"
    own_weights = {"quality_value": 2.0123, "payment_cost": 0.131313}
    given = {"noise": "secure", "false_alarm": 1e-9, **own_weights}
    grid = grid_of(clock_scenario(folder, **given), folder)
    public = tmp_path / "public.csv"  # what the curator knows of the owners
    public.write_text("owner,data_size,beta\n" + "".join(f"{name},30,1\n" for name in NAMES))
    blind = clock_scenario(folder, **given)
    people = blind.population.model_copy(update={"file": str(public)})
    hold(grid, blind.model_copy(update={"population": people}), folder)
    assert any(saving > 0 for saving, _ in sold(folder).values())
    secrets = [*COSTS.values(), *MARKUPS.values()]
    said = Overheard([*grid.sent, *grid.heard])
    assert [one for one in secrets if said.says(one)] == []
    files = [one for one in folder.rglob("*") if one.is_file() and "owners" not in one.parts]
    assert {"ledger.sqlite", "000001.npz", "traffic.json"} <= {one.name for one in files}
    assert [one.name for one in files if holds(one.read_bytes(), secrets)] == []
    replies = [plain_of(one.content)[0]["message"] for one in grid.heard]
    fields = {"key", "stay", "signature", "receipt", "weights"}
    assert {name for one in replies for name in json.loads(str(one))} == fields
    assert not any(said.says(value) for value in own_weights.values())


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many questions a clock asks that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    grid = grid_of(scenario := clock_scenario(folder), folder)
    hold(grid, scenario, folder)
    return len(asked(grid))


@pytest.mark.parametrize("at", [1, 3, 4, 7, 12, 15, 19])
def test_a_clock_cut_off_anywhere_goes_on(
    embedded: Path, questions: int, tmp_path: Path, at: int
) -> None:
    folder = tmp_path / "run"
    grid = grid_of(scenario := clock_scenario(folder), folder)
    with dying(grid, at):
        hold(grid, scenario, folder)
    first = len(asked(grid))
    outcome = hold(grid, scenario, folder)
    assert deals(folder) == deals(embedded)
    assert outcome.left_out == {}
    assert len(asked(grid)) - questions <= 3, f"one lot twice, of {first}"


def test_answers_to_another_clock_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    grid = grid_of(scenario := clock_scenario(folder, rounds=1), folder)
    hold(grid, scenario, folder)
    with pytest.raises(BadInput, match="are of another negotiation"):
        hold(grid, clock_scenario(folder, rounds=1, quality_value=2.1), folder)
    kept = folder / "curator" / "answers" / "000001.npz"
    kept.write_bytes(kept.read_bytes()[:-9])
    with pytest.raises(BadInput, match="cannot be read"):
        hold(grid, scenario, folder)


def test_an_owner_that_answers_rubbish_is_left_out_and_the_clock_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    grid = grid_of(scenario := clock_scenario(folder, rounds=1), folder)
    grid.nodes[100].app = rubbish("price", content(({"stay": "perhaps"}, {})))
    outcome = hold(grid, scenario, folder)
    assert outcome.left_out == {"0": "price: unusable answers"}
    assert sold(folder)["1"][0] > 0


def test_an_owner_with_a_floor_of_its_own_leaves_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    grid = grid_of(scenario := clock_scenario(folder, rounds=1), folder)
    grid.nodes[100].config["floor"] = 0.2
    hold(grid, scenario, folder)
    assert sold(folder)["0"] == (0.0, 0)
    assert Counter(asked(grid))[100] == 1


def test_a_target_that_cannot_be_reached_writes_nothing(tmp_path: Path) -> None:
    scenario = clock_scenario(tmp_path / "run", target_accuracy=99.9)
    with pytest.raises(BadInput, match=r"market.target_accuracy 99.9 is out of reach"):
        run_market(scenario, tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()
