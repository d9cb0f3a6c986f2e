"""The ledger: additive, order-free, under its cap, and never short of a release."""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisemarket.errors import BadInput
from noisemarket.privacy.accountant import Accountant, BudgetSpent, Charge, PrivacyBudget
from noisemarket.privacy.noise import SecureNoise, SimulatedNoise
from noisemarket.privacy.zcdp import gaussian_rho

SENSITIVITY = 2 / 64


def budget(owner: int | str = 0, **changes: object) -> PrivacyBudget:
    """Sharded, sigma 0.3, and whatever differs."""
    settings = {"protection": "sharded", "sigma": 0.3, "sensitivity": SENSITIVITY, **changes}
    return PrivacyBudget(owner=owner, **settings)  # type: ignore[arg-type]


RHO = gaussian_rho(SENSITIVITY, 0.3)

costs = st.lists(st.floats(0.0, 1e6), max_size=30)


@given(costs, st.randoms())
def test_costs_add_in_any_order(rhos: list[float], random: object) -> None:
    one, other = Accountant([budget()]), Accountant([budget()])
    for number, rho in enumerate(rhos, start=1):
        one.charge(0, number, rho)
    shuffled = list(enumerate(rhos, start=1))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for number, rho in shuffled:
        other.charge(0, number, rho)
    assert one.spent(0) == other.spent(0) == math.fsum(rhos)
    assert one.statement(0) == other.statement(0)


@given(st.dictionaries(st.integers(0, 5), costs))
def test_owners_do_not_touch_each_other(plan: dict[int, list[float]]) -> None:
    accountant = Accountant(budget(owner, sigma=0.1 + owner) for owner in plan)
    for owner, rhos in plan.items():
        for number, rho in enumerate(rhos, start=1):
            accountant.charge(owner, number, rho)
    for owner, rhos in plan.items():
        assert accountant.spent(owner) == math.fsum(rhos)
        assert accountant.statement(owner).sigma == 0.1 + owner


@given(st.floats(0.0, 10.0), costs)
def test_the_cap_is_never_passed(cap: float, rhos: list[float]) -> None:
    accountant = Accountant([budget(rho_cap=cap)])
    for number, rho in enumerate(rhos, start=1):
        before = accountant.spent(0)
        if accountant.may_start(0, rho):
            assert accountant.charge(0, number, rho)
        else:
            with pytest.raises(BudgetSpent, match="owner 0"):
                accountant.charge(0, number, rho)
            assert accountant.spent(0) == before
        assert accountant.spent(0) <= cap * (1 + 1e-12)


@given(st.integers(1, 1000))
def test_a_cap_of_so_many_rounds_lasts_so_many_rounds(rounds: int) -> None:
    accountant = Accountant([budget(rho_cap=RHO * rounds)])
    for number in range(1, rounds + 1):
        accountant.charge(0, number)
    assert not accountant.may_start(0)


def test_the_same_release_is_charged_once_a_new_one_again() -> None:
    accountant = Accountant([budget()])
    seeded, secure = SimulatedNoise(1), SecureNoise()
    assert accountant.charge(0, 4, RHO, seeded.stream(0, 4).release_id())
    assert not accountant.charge(0, 4, RHO, seeded.stream(0, 4).release_id())
    assert accountant.charged(0, 4, seeded.stream(0, 4).release_id())
    assert accountant.spent(0) == RHO
    for _ in range(2):  # the round is run again, with noise that never was
        assert accountant.charge(0, 4, RHO, secure.stream(0, 4).release_id())
    assert accountant.charge(0, 4)  # without a name: new
    assert accountant.spent(0) == pytest.approx(4 * RHO)
    statement = accountant.statement(0)
    assert (statement.rounds, statement.releases) == (1, 4)


def test_a_release_belongs_to_its_round_and_has_one_cost() -> None:
    accountant = Accountant([budget()])
    accountant.charge(0, 1, RHO, "a")
    assert accountant.charge(0, 2, RHO, "a")
    with pytest.raises(BadInput, match="another rho"):
        accountant.charge(0, 1, 2 * RHO, "a")
    with pytest.raises(BadInput, match="another rho"):
        accountant.charge_all([Charge(0, 3, RHO, "b"), Charge(0, 3, 2 * RHO, "b")])
    assert accountant.spent(0) == pytest.approx(2 * RHO)


def test_what_was_paid_for_may_go_out_again_at_the_cap() -> None:
    accountant = Accountant([budget(rho_cap=RHO)])
    accountant.charge(0, 1, RHO, "a")
    assert not accountant.may_start(0)
    assert accountant.charge(0, 1, RHO, "a") is False


def test_a_round_is_charged_whole_or_not_at_all() -> None:
    accountant = Accountant([budget("a"), budget("b", rho_cap=RHO / 2)])
    with pytest.raises(BudgetSpent, match="owner b"):
        accountant.charge_all([Charge("a", 1, RHO, "x"), Charge("b", 1, RHO, "y")])
    assert accountant.spent("a") == accountant.spent("b") == 0.0
    twice = [Charge("a", 1, RHO, "x"), Charge("a", 1, RHO, "x"), Charge("a", 1, RHO, "y")]
    assert accountant.charge_all(twice) == (twice[0], twice[2])


def test_two_releases_of_one_call_count_together() -> None:
    accountant = Accountant([budget(rho_cap=1.5 * RHO)])
    with pytest.raises(BudgetSpent):
        accountant.charge_all([Charge(0, 1, RHO, "x"), Charge(0, 2, RHO, "y")])


@given(st.lists(st.tuples(st.sampled_from([0, "b"]), st.floats(0.0, 9.0)), max_size=9))
def test_state_survives_json(charges: list[tuple[int | str, float]]) -> None:
    accountant = Accountant([budget(rho_cap=1e9), budget("b", sensitivity=math.inf)])
    for number, (owner, rho) in enumerate(charges, start=1):
        accountant.charge(owner, number, rho)
    accountant.charge("b", 99)
    for budgeted in accountant.budgets:
        values = json.loads(json.dumps(budgeted.to_dict(), allow_nan=False))
        assert PrivacyBudget.from_dict(values) == budgeted
    for charge in accountant.charges:
        assert Charge.from_row(json.loads(json.dumps(charge.to_row(), allow_nan=False))) == charge


def test_statement_in_words() -> None:
    accountant = Accountant([budget(7, rho_cap=0.2)])
    for number in range(1, 31):
        accountant.charge(7, number)
    statement = accountant.statement(7)
    assert statement.guaranteed
    assert not statement.simulated
    assert statement.noise_multiplier == pytest.approx(9.6)
    assert statement.rho_total == pytest.approx(30 * RHO)
    assert statement.epsilon == pytest.approx(2.31, abs=0.005)
    assert statement.epsilon_general == pytest.approx(2.51, abs=0.005)
    text = statement.text()
    for words in (
        "Owner 7, protection sharded, noise sigma 0.3, 30 uploads in 30 rounds.",
        "Hidden: one record (neighbours: replace_one).",
        "replace_one",
        "9.6 times the sensitivity",
        "a cap of 0.2",
        "epsilon 2.31 at delta 1e-05, exactly",
        "at most 2.508",
    ):
        assert words in text
    assert "NOT PRIVATE" not in text
    json.dumps(statement.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"protection": "paper", "sensitivity": math.inf}, "no bound on what a record changes"),
        ({"sigma": 0.0}, "no noise is added"),
        ({"sigma": 1e-200}, "what was released has too little noise"),
    ],
)
def test_without_a_bound_nothing_is_guaranteed(changes: dict[str, object], why: str) -> None:
    accountant = Accountant([budget(**changes)])
    assert not accountant.statement(0).guaranteed
    accountant.charge(0, 1)
    statement = accountant.statement(0)
    assert statement.epsilon == statement.rho_total == math.inf
    assert f"Nothing is guaranteed: {why}." in statement.text()
    assert "1 upload in 1 round." in statement.text()
    assert statement.to_dict()["epsilon"] is None
    assert statement.protects is accountant.statement(0).to_dict()["protects"] is None
    assert "Hidden" not in statement.text()
    json.dumps(statement.to_dict(), allow_nan=False)
    capped = Accountant([budget(rho_cap=5.0, **changes)])
    assert not capped.may_start(0)


def test_seeded_noise_is_never_a_guarantee() -> None:
    accountant = Accountant([budget(simulated=True)])
    accountant.charge(0, 1)
    statement = accountant.statement(0)
    assert statement.simulated
    assert not statement.guaranteed
    assert "NOT PRIVATE: noise from a fixed seed" in statement.text()


@pytest.mark.parametrize(
    "call",
    [
        lambda: budget(sigma=-0.1),
        lambda: budget(sigma=math.nan),
        lambda: budget(sensitivity=math.nan),
        lambda: budget(delta=0.0),
        lambda: budget(delta=1.0),
        lambda: budget(rho_cap=-1.0),
        lambda: budget(rho_cap=math.nan),
        lambda: Accountant([budget(1), budget(1)]),
        lambda: Accountant([budget()]).charge(3, 1),
        lambda: Accountant([budget()]).statement("x"),
        lambda: Accountant([budget()]).may_start(0, math.nan),
        lambda: Accountant([budget()]).charge(0, 1, -1.0),
        lambda: Accountant([budget()]).charge(0, 0),  # rounds count from 1
    ],
)
def test_bad_input(call: Callable[[], object]) -> None:
    with pytest.raises(BadInput):
        call()
