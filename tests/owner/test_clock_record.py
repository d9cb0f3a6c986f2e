"""An owner in a clock auction: truthful answers, kept; no way back, no price that rises."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PerRecord
from noisemarket.files import private_folder
from noisemarket.game.levels import Levels
from noisemarket.game.sides import OwnerSide
from noisemarket.market.negotiation import run_options
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import SALE, Declined, OwnerFolder
from noisemarket.owner.invitations import GameInvitation, SaleInvitation, SaleRecord
from noisemarket.pricing.clock import Clock
from noisemarket.pricing.messages import QuoteBatch, game_rules
from noisemarket.privacy.zcdp import Neighbours, gaussian_rho
from noisemarket.scenario import Scenario

LEVELS, WORK = Levels(), {"simulated": False}
CLOCKS = SaleInvitation("job", "ab" * 32, WORK, LEVELS, 10)
COUNTED = replace(
    CLOCKS,
    work={**WORK, "protection": "per_record", "settings": {}, "rounds": 30, "weights": 1990},
)
OWN = {"privacy_cost": 0.6, "markup": 0.2, "payment_value": 0.08, "privacy_weight": 2.5}
LOWEST = 23  # 0.08 times 11.5 is the first payment that covers 2.5 times 0.6 times 0.5 times 1.2


def side(**more: float) -> OwnerSide:
    own = OWN | more
    cost, markup = np.array([own["privacy_cost"]]), np.array([own["markup"]])
    return OwnerSide(
        LEVELS, "privacy_loss", own["payment_value"], own["privacy_weight"], cost, markup,
        floor=np.array([own.get("floor", 0.0)]),
    )  # fmt: skip


def agent(folder: Path, **more: object) -> OwnerAgent:
    made = OwnerFolder("anna", private_folder(folder / "anna"))
    made.keep_private(OWN | {"allow_unbounded": True} | more)
    return OwnerAgent(made)


def with_cap(folder: Path, cap: float) -> OwnerAgent:
    made = agent(folder, rho_cap=cap)
    made.folder.keep_records(np.zeros((600, 1), np.float32), np.zeros(600, np.int64))
    return made


def test_it_stays_exactly_while_it_pays() -> None:
    answers = [bool(side().accepts(10, level)[0]) for level in range(33)]
    assert answers == [level >= LOWEST for level in range(33)]


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_a_floor_of_its_own_that_is_kept_changes_nothing(floor: float) -> None:
    assert side(floor=floor).accepts(10, 32)[0]


@pytest.mark.parametrize("floor", [0.11, 0.6, 9.0])
def test_it_never_sells_below_its_own_floor(floor: float) -> None:
    assert not side(floor=floor).accepts(10, 32)[0]


@pytest.mark.parametrize(("share", "stays"), [(1.001, False), (1.01, True)])
def test_it_stays_only_with_what_its_cap_lets_it_sign(
    tmp_path: Path, share: float, stays: bool
) -> None:
    """The rounding of the noise costs the more the larger the model is."""
    cost = 30 * gaussian_rho(PerRecord().sensitivity(0, 600, Neighbours.REPLACE_ONE), 0.1)
    assert with_cap(tmp_path, share * cost).stay(COUNTED, 32) == stays


def test_a_cap_below_all_its_noise_is_the_reason_that_it_names(tmp_path: Path) -> None:
    with pytest.raises(Declined, match="the owner's privacy cap"):
        with_cap(tmp_path, 1e-9).stay(COUNTED, 32)


@pytest.mark.parametrize("currency", [["x"], None, "", " EUR", "E\nUR", "x" * 21])
def test_a_currency_that_is_not_a_short_word_is_declined(tmp_path: Path, currency: object) -> None:
    """It would be in every account that the owner reads."""
    anna = agent(tmp_path)
    with pytest.raises(Declined, match="the currency is not a short word"):
        anna.stay(replace(CLOCKS, work={**WORK, "currency": currency}), 32)
    assert anna.stay(replace(CLOCKS, work={**WORK, "currency": "[/b]"}), 32)


def test_all_owners_at_once_and_one_by_one_answer_alike() -> None:
    """What the embedded market computes is what an agent says, to the bit."""
    scenario = Scenario.from_preset("market", owners=50, privacy_cost={"distribution": "uniform",
                                    "low": 0.2, "high": 1.2})  # fmt: skip
    environment = scenario.environment()
    for level in range(1, 33):
        together = environment.owner_side().accepts(10, level)
        alone = [
            bool(environment.owner_side(-1, slice(one, one + 1)).accepts(10, level)[0])
            for one in range(50)
        ]
        assert together.tolist() == alone
    assert Clock().run(environment, run_options(scenario)).contracts.signed.any()


def test_an_agent_keeps_its_answers_and_gives_them_again(tmp_path: Path) -> None:
    anna = agent(tmp_path)
    assert [anna.stay(CLOCKS, level) for level in (32, 30, 30, 23)] == [True] * 4
    again = agent(tmp_path)
    kept = SaleRecord.read(again.folder.job("job") / SALE)
    assert kept.deals() == [(10, 23), (0, 0)]
    with pytest.raises(Declined, match="the price has risen"):
        again.stay(CLOCKS, 24)
    assert again.stay(CLOCKS, 23)
    assert [again.stay(CLOCKS, 22) for _ in range(2)] == [False, False]
    assert SaleRecord.read(again.folder.job("job") / SALE).deals() == [(0, 0)]
    for level in (32, 23, 21, 1):
        with pytest.raises(Declined, match="the owner has left"):
            again.stay(CLOCKS, level)


def test_one_job_has_one_kind_of_negotiation(tmp_path: Path) -> None:
    """Else a curator would learn the limit of an owner that stayed, and pay no more than that."""
    anna = agent(tmp_path)
    assert anna.stay(CLOCKS, 32)
    with pytest.raises(Declined, match="answered to a price"):
        anna.bid(CLOCKS)
    other = replace(CLOCKS, job="other")
    assert anna.bid(other) == anna.bid(other) == LOWEST
    with pytest.raises(Declined, match="named a price"):
        anna.stay(other, 32)
    scenario = Scenario.from_preset("market")
    rules = game_rules(scenario.environment(), "greedy", run_options(scenario).play, 5)
    game = GameInvitation("game", CLOCKS.curator_key, WORK, 7, rules)
    savings = rules.levels.shape[0]
    quotes = QuoteBatch(0, np.ones((5, savings), np.int64), np.ones((5, savings), bool))
    anna.answer(game, quotes)
    with pytest.raises(Declined, match="is another one"):
        anna.bid(replace(CLOCKS, job="game"))
    with pytest.raises(Declined, match="is another one"):
        anna.answer(replace(game, job="job"), quotes)


@pytest.mark.parametrize("level", [0, -1, 33])
def test_a_price_off_the_grid_is_declined(tmp_path: Path, level: int) -> None:
    with pytest.raises(Declined, match="no such price"):
        agent(tmp_path).stay(CLOCKS, level)


@pytest.mark.parametrize(
    "change", [{"saving": 11}, {"levels": Levels(payment_max=32.0)}, {"curator_key": "cd" * 32}]
)
def test_the_rules_of_a_clock_do_not_change(tmp_path: Path, change: dict[str, object]) -> None:
    anna = agent(tmp_path)
    anna.stay(CLOCKS, 32)
    with pytest.raises(Declined, match="another one"):
        anna.stay(replace(CLOCKS, **change), 31)


def test_an_agent_leaves_below_its_own_floor(tmp_path: Path) -> None:
    assert not agent(tmp_path, floor=0.2).stay(CLOCKS, 32)


@pytest.mark.parametrize("floor", [-0.1, "low", True])
def test_a_floor_that_is_none_is_refused(tmp_path: Path, floor: object) -> None:
    with pytest.raises(BadInput, match=r"floor of owner .* is .*give a number"):
        agent(tmp_path, floor=floor).stay(CLOCKS, 32)


@pytest.mark.parametrize(
    "change",
    [
        {"saving": 0}, {"saving": 13}, {"saving": True}, {"saving": 1.0}, {"job": 3},
        {"curator_key": "x"}, {"work": []}, {"levels": {"sigma_max": -1}},
        {"levels": {"payment_levels": 10**9}}, {"levels": {"payment_max": "1"}}, {"more": 1},
    ],
)  # fmt: skip
def test_an_invitation_that_is_none_is_declined(change: dict[str, object]) -> None:
    values = json.loads(CLOCKS.to_json())
    if isinstance(change.get("levels"), dict) and change["levels"]:
        change = {"levels": values["levels"] | change["levels"]}
    with pytest.raises(Declined, match="cannot be read"):
        SaleInvitation.from_json(json.dumps(values | change))
    assert SaleInvitation.from_json(CLOCKS.to_json()) == CLOCKS


def test_a_clock_of_another_version_is_declined_in_words(tmp_path: Path) -> None:
    SaleRecord(CLOCKS, stayed=30).save(tmp_path / SALE)
    kept = json.loads((tmp_path / SALE).read_text())
    answers = {"stayed": 30, "left": None, "bid": None, "item": None}
    assert kept == {"invitation": json.loads(CLOCKS.to_json()), **answers}
    del kept["invitation"]["levels"]
    (tmp_path / SALE).write_text(json.dumps(kept))
    with pytest.raises(Declined, match="of another version"):
        SaleRecord.read(tmp_path / SALE)
