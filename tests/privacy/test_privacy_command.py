"""The calculator on the command line: right numbers, right words, one sentence for bad input."""

import json
import math
from dataclasses import replace

import pytest

from noisemarket.cli.app import PrivacyOptions
from noisemarket.cli.privacy import privacy_answer, run
from noisemarket.errors import BadInput

PLAIN = PrivacyOptions()


def test_table_over_sigma() -> None:
    document = privacy_answer(PLAIN)
    found = {row["sigma"]: row["epsilon"] for row in document["table"]}
    assert [found[sigma] for sigma in (0.05, 0.1, 0.2, 0.3, 0.6)] == pytest.approx(
        [19.81, 8.27, 3.66, 2.31, 1.07], abs=0.005
    )
    assert document["guaranteed"]
    assert document["protects"] == "one record, replaced by any other"
    assert document["at_sigma"] is document["for_epsilon"] is None


def test_both_ways() -> None:
    document = privacy_answer(replace(PLAIN, sigma=0.3, epsilon=2.0, shards=50))
    assert document["at_sigma"]["rho_per_round"] == pytest.approx(2 / (50 * 0.3) ** 2)
    assert document["at_sigma"]["rho_total"] == pytest.approx(60 / (50 * 0.3) ** 2)
    needed = document["for_epsilon"]
    assert needed["epsilon"] == pytest.approx(2.0)
    back = privacy_answer(replace(PLAIN, sigma=needed["sigma"], shards=50))
    assert back["at_sigma"] == needed


def test_dp_sgd() -> None:
    question = replace(PLAIN, protection="dp_sgd", sigma=0.1, clip=2.0, steps=5, batch=32)
    row = privacy_answer(replace(question, learning_rate=0.2))["at_sigma"]
    assert row["rho_per_round"] == pytest.approx(2 * 5 * 0.2**2 * 2**2 / (32**2 * 0.1**2))


def test_neighbours_are_named() -> None:
    zero = privacy_answer(replace(PLAIN, sigma=0.3, neighbours="zero_out"))
    one = privacy_answer(replace(PLAIN, sigma=0.3))
    assert zero["at_sigma"]["rho_total"] == pytest.approx(one["at_sigma"]["rho_total"] / 4)
    assert zero["neighbours"] == "zero_out"
    assert "its shard" in zero["protects"]
    whole = privacy_answer(replace(PLAIN, shards=1, sigma=0.3))
    assert whole["protects"] == "the owner's whole data, replaced by any other"
    assert whole["at_sigma"]["epsilon"] > 100


def test_the_noise_grid_is_charged_on_request() -> None:
    plain, charged = privacy_answer(PLAIN), privacy_answer(replace(PLAIN, parameters=80_202))
    assert 1.0 < charged["sensitivity"] / plain["sensitivity"] < 1.0006


def test_paper_guarantees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    question = replace(PLAIN, protection="paper", sigma=0.3)
    document = privacy_answer(question)
    assert not document["guaranteed"]
    assert document["at_sigma"]["epsilon"] is document["protects"] is None
    run(question)
    assert "Nothing is guaranteed" in capsys.readouterr().out


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    for question in (PLAIN, replace(PLAIN, sigma=0.0), replace(PLAIN, protection="paper")):
        run(replace(question, json=True))
        assert json.loads(capsys.readouterr().out) == json.loads(
            json.dumps(privacy_answer(question))
        )
    assert not privacy_answer(replace(PLAIN, sigma=0.0))["guaranteed"]


def test_words(capsys: pytest.CaptureFixture[str]) -> None:
    run(replace(PLAIN, sigma=0.25, epsilon=2.0))
    shown = capsys.readouterr().out
    assert "Hidden: one record, replaced by any other (neighbours: replace_one)." in shown
    assert "Epsilon 2 needs sigma 0.341268." in shown
    assert "0.25" in shown
    run(replace(PLAIN, sigma=0.0))
    assert "nothing is guaranteed" in capsys.readouterr().out


@pytest.mark.parametrize("sigma", [0.0, 1e-200])
def test_without_a_finite_epsilon_nothing_is_guaranteed(
    sigma: float, capsys: pytest.CaptureFixture[str]
) -> None:
    document = privacy_answer(replace(PLAIN, sigma=sigma))
    assert document["at_sigma"]["epsilon"] is None
    assert document["guaranteed"] is False
    assert document["protects"] is None
    run(replace(PLAIN, sigma=sigma))
    shown = capsys.readouterr().out
    assert f"Sigma {sigma:g}: " in shown
    assert "Hidden" not in shown
    assert "protection paper" not in shown
    assert "19.81" in shown, "the table of other sigmas stands"


def test_noise_beyond_measure(capsys: pytest.CaptureFixture[str]) -> None:
    run(replace(PLAIN, sigma=1e308, clip=1e-10, json=True))
    assert json.loads(capsys.readouterr().out)["at_sigma"]["noise_multiplier"] is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"sigma": -0.1}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"sigma": math.inf}, "sigma"),
        ({"clip": 0.0}, "clip"),
        ({"clip": math.nan}, "clip"),
        ({"clip": 0.0, "protection": "paper"}, "clip"),
        ({"clip": math.inf}, "clip"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"delta": 2.0, "protection": "paper"}, "delta"),
        ({"rounds": 0}, "rounds"),
        ({"shards": 0}, "shards"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1.0, "protection": "paper"}, "epsilon"),
        ({"protection": "magic"}, "protection"),
        ({"neighbours": "add_one"}, "neighbours"),
        ({"steps": 3}, "--steps"),
        ({"learning_rate": 0.1}, "--learning-rate"),
        ({"shards": 3, "protection": "dp_sgd"}, "--shards"),
        ({"batch": 0, "protection": "dp_sgd"}, "batch"),
        ({"parameters": -1}, "parameters"),
        ({"parameters": 10**400}, "--parameters"),
        ({"rounds": 10**400}, "--rounds"),
        ({"shards": 10**400}, "shards"),
        ({"batch": 10**400, "protection": "dp_sgd"}, "batch"),
        ({"steps": 10**400, "protection": "dp_sgd"}, "steps"),
        ({"epsilon": 1e308}, "^epsilon "),
        ({"epsilon": 1e300, "clip": 1e-300}, "^--epsilon "),
        ({"epsilon": 5e-324, "delta": 5e-324}, "^epsilon "),
        ({"clip": 1e308, "sigma": 1e-300}, "^--clip .* sensitivity of inf"),
        ({"clip": 5e-324}, "^--clip .* sensitivity of 0"),
    ],
)
def test_bad_input(changes: dict[str, object], field: str) -> None:
    with pytest.raises(BadInput, match=field):
        privacy_answer(replace(PLAIN, **changes))  # type: ignore[arg-type]
