"""The calculator on the command line: right numbers, right words, one sentence for bad input."""

import json
import math
from typing import Any

import pytest

from noisemarket.cli.privacy import privacy
from noisemarket.errors import BadInput
from noisemarket.scenario import load_scenario
from noisemarket.show.privacy_report import privacy_answer


def answer(*settings: str, **asked: float) -> dict[str, Any]:
    return privacy_answer(load_scenario(settings=settings), **asked)


def show(*settings: str, **asked: Any) -> None:
    privacy(settings=list(settings), **asked)


def test_table_over_sigma() -> None:
    document = answer()
    found = {row["sigma"]: row["epsilon"] for row in document["table"]}
    assert [found[sigma] for sigma in (0.05, 0.1, 0.2, 0.3, 0.6)] == pytest.approx(
        [1.406, 0.657, 0.309, 0.198, 0.093], abs=0.0006
    )
    assert document["guaranteed"]
    assert document["protects"] == "one record, replaced by any other"
    assert document["at_sigma"] is document["for_epsilon"] is None


def test_both_ways() -> None:
    document = answer("protection=sharded", "records_per_shard=12", sigma=0.3, epsilon=2.0)
    assert document["at_sigma"]["rho_per_round"] == pytest.approx(2 / (50 * 0.3) ** 2)
    assert document["at_sigma"]["rho_total"] == pytest.approx(60 / (50 * 0.3) ** 2)
    needed = document["for_epsilon"]
    assert needed["epsilon"] == pytest.approx(2.0)
    back = answer("protection=sharded", "records_per_shard=12", sigma=needed["sigma"])
    assert back["at_sigma"] == needed


def test_dp_sgd() -> None:
    settings = ("protection=dp_sgd", "clip=2", "batch=32", "data_size=160")
    row = answer(*settings, sigma=0.1)["at_sigma"]
    assert row["rho_per_round"] == pytest.approx(2 * 5 * 0.5**2 * 2**2 / (32**2 * 0.1**2))


def test_neighbours_are_named() -> None:
    zero = answer("neighbours=zero_out", sigma=0.3)
    one = answer(sigma=0.3)
    assert zero["at_sigma"]["rho_total"] == pytest.approx(one["at_sigma"]["rho_total"] / 4)
    assert zero["neighbours"] == "zero_out"
    assert "gradient zeroed out" in zero["protects"]
    assert (
        "its shard"
        in answer("neighbours=zero_out", "protection=sharded", "records_per_shard=2")["protects"]
    )
    whole = answer("protection=sharded", "records_per_shard=600", sigma=0.3)
    assert whole["protects"] == "the owner's whole data, replaced by any other"
    assert whole["at_sigma"]["epsilon"] > 100


def test_paper_guarantees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer("protection=paper", sigma=0.3)
    assert not document["guaranteed"]
    assert document["at_sigma"]["epsilon"] is document["protects"] is None
    show("protection=paper", sigma=0.3)
    assert "Nothing is guaranteed" in capsys.readouterr().out


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    for settings, asked in ((), {}), ((), {"sigma": 0.0}), (("protection=paper",), {}):
        show(*settings, **asked, as_json=True)
        found = json.loads(capsys.readouterr().out)
        assert found == json.loads(json.dumps(answer(*settings, **asked)))
    assert not answer(sigma=0.0)["guaranteed"]


def test_words(capsys: pytest.CaptureFixture[str]) -> None:
    show(sigma=0.25, epsilon=2.0)
    shown = capsys.readouterr().out
    assert "Hidden: one record, replaced by any other (neighbours: replace_one)." in shown
    assert "Epsilon 2 needs sigma 0.0364019." in shown
    assert "0.25" in shown
    show(sigma=0.0)
    assert "nothing is guaranteed" in capsys.readouterr().out


@pytest.mark.parametrize("sigma", [0.0, 1e-200])
def test_without_a_finite_epsilon_nothing_is_guaranteed(
    sigma: float, capsys: pytest.CaptureFixture[str]
) -> None:
    document = answer(sigma=sigma)
    assert document["at_sigma"]["epsilon"] is None
    assert document["guaranteed"] is False
    assert document["protects"] is None
    show(sigma=sigma)
    shown = capsys.readouterr().out
    assert f"Sigma {sigma:g}: " in shown
    assert "Hidden" not in shown
    assert "protection paper" not in shown
    assert "1.406" in shown, "the table of other sigmas stands"


def test_noise_beyond_measure(capsys: pytest.CaptureFixture[str]) -> None:
    show("clip=1e-10", sigma=1e308, as_json=True)
    assert json.loads(capsys.readouterr().out)["at_sigma"]["noise_multiplier"] is None


@pytest.mark.parametrize(
    ("settings", "asked", "field"),
    [
        ("", {"sigma": -0.1}, "sigma"),
        ("", {"sigma": math.nan}, "sigma"),
        ("", {"sigma": math.inf}, "sigma"),
        ("clip=0", {}, "privacy.clip"),
        ("delta=1", {}, "privacy.delta"),
        ("rounds=0", {}, "training.rounds"),
        ("records_per_shard=0", {}, "privacy.records_per_shard"),
        ("", {"epsilon": 0.0}, "epsilon"),
        ("", {"epsilon": math.nan}, "epsilon"),
        ("protection=paper", {"epsilon": 1.0}, "^epsilon .*paper guarantees no epsilon"),
        ("protection=magic", {}, "privacy.protection"),
        ("neighbours=add_one", {}, "privacy.neighbours"),
        ("", {"epsilon": 1e308}, "^epsilon "),
        ("clip=1e-300", {"epsilon": 1e300}, "^epsilon "),
        ("delta=5e-324", {"epsilon": 5e-324}, "^epsilon "),
        ("clip=5e-324", {}, "^privacy.clip .* too small"),
    ],
)
def test_bad_input(settings: str, asked: dict[str, float], field: str) -> None:
    with pytest.raises(BadInput, match=field):
        answer(*settings.split(), **asked)


@pytest.mark.parametrize("other", ["sigma", "epsilon"])
def test_a_rho_is_not_asked_with_noise(other: str) -> None:
    with pytest.raises(BadInput, match=r"--rho is 0\.5: .* without --sigma and --epsilon"):
        show(rho=[0.5], **{other: 0.3})
