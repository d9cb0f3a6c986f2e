"""What the command line says about itself."""

import re
from pathlib import Path

import pytest
from tests.commands import call_here

from noisemarket.cli.estimate import announce, announce_games, training_seconds
from noisemarket.cli.options import MECHANISMS
from noisemarket.cli.run import against
from noisemarket.pricing import MECHANISMS as KNOWN
from noisemarket.scenario import Scenario

TAKE_A_SCENARIO = (
    "run",
    "negotiate",
    "compare",
    "calibrate",
    "audit",
    "privacy",
    "reproduce",
    "scenario",
)


def said(*words: str, cwd: Path) -> str:
    done = call_here(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.replace("│", " ").split())


@pytest.mark.parametrize("command", [*TAKE_A_SCENARIO, "dashboard"])
def test_help_has_an_example_and_says_what_a_scenario_is(command: str, tmp_path: Path) -> None:
    shown = said(command, "--help", cwd=tmp_path)
    assert f"Example: noisemarket {command}" in shown
    assert ("SCENARIO is a TOML file" in shown) == (command in TAKE_A_SCENARIO)


def test_arguments_are_explained_and_completion_is_offered(tmp_path: Path) -> None:
    shown = said("ledger", "show", "--help", cwd=tmp_path)
    assert "Id of the contract, or its first characters." in shown
    assert "--install-completion" in said("--help", cwd=tmp_path)


def test_a_mistyped_mechanism_gets_a_hint(tmp_path: Path) -> None:
    for words in (["negotiate", "--mechanism", "dyp"], ["compare", "--mechanisms", "clock,dyp"]):
        mistyped = call_here(*words, cwd=tmp_path)
        assert mistyped.returncode == 2
        assert "mechanism is dyp: did you mean dypp?" in mistyped.stderr


def test_the_first_help_has_an_example(tmp_path: Path) -> None:
    assert "Example: noisemarket run" in said("--help", cwd=tmp_path)


def test_a_mistyped_command_gets_one_hint_and_a_missing_one_the_help(tmp_path: Path) -> None:
    mistyped = call_here("negotiat", cwd=tmp_path)
    assert (mistyped.returncode, mistyped.stderr.count("Did you mean 'negotiate'?")) == (2, 1)
    assert call_here("ownr", cwd=tmp_path).stderr.count("Did you mean") == 1
    guessed = call_here("owner", "consortium", cwd=tmp_path).stderr
    assert guessed.endswith("No such command 'consortium'. Choose one of: init, account.\n")
    assert "ledger show --help" in call_here("ledger", "show", cwd=tmp_path).stderr
    missing = call_here("ledger", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (2, "")
    assert "statement" in missing.stdout


def test_every_mechanism_is_listed(tmp_path: Path) -> None:
    listed = {name.partition(" ")[0] for name in MECHANISMS.split(", ")}
    assert listed == {name for name in KNOWN if type(KNOWN[name]).__module__.startswith("noise")}
    for command in ("run", "negotiate", "compare"):
        shown = said(command, "--help", cwd=tmp_path)
        assert all(name in shown for name in listed)


def test_keys_are_explained_for_the_scenario_that_is_named(tmp_path: Path) -> None:
    """With its values, its bounds, and what each key means."""
    rows = {
        preset: call_here("scenario", "--explain", "--preset", preset, cwd=tmp_path).stdout
        for preset in ("market", "paper")
    }
    lines = {
        preset: {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
        for preset, text in rows.items()
    }
    for preset, shown in lines.items():
        made = Scenario.from_preset(preset)
        assert shown["game.protocol"][0] == made.game.protocol
        assert shown["mechanism"][0] == made.mechanism
        assert shown["training.network"][0] == made.training.network
        assert shown["learning.optimism"][0] == f"{made.learning.optimism:g}"
        assert shown["game.saving_levels"][1:6] == ["a", "whole", "number", "from", "1"]
        assert {"changes.at"} <= set(shown)
    own = said("scenario", "--explain", "--set", "batch=77", cwd=tmp_path)
    assert "training.batch 77" in own


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("run --draws 0", "--draws is 0: give a number of at least 1."),
        ("run --draws x", "--draws is x: give a whole number."),
        ("privacy --sigma x", "--sigma is x: give a number."),
        ("dashboard --port 99999", "--port is 99999: give a number from 0 to 65535."),
    ],
)
def test_a_bad_option_is_refused_in_plain_words(words: str, told: str, tmp_path: Path) -> None:
    refused = call_here(*words.split(), cwd=tmp_path)
    assert (refused.returncode, refused.stderr) == (2, f"noisemarket: {told}\n")


def test_a_long_run_is_announced_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    announce(Scenario.from_preset("market", owners=10, rounds=5), 1, workers=1)
    assert capsys.readouterr().err == ""
    network = Scenario.from_preset("market", model="cnn")
    announce(network, 1, workers=1)
    said = capsys.readouterr().err
    found = re.fullmatch(r"About (\d+) minutes: 100 owners x 30 rounds of the CNN\.\n", said)
    assert found is not None
    assert int(found[1]) == pytest.approx(training_seconds(network) / 60, abs=0.5)
    announce_games(200, 100, 10_000, workers=1)
    assert re.match(r"About \d+ seconds: 200 games of 100 owners", capsys.readouterr().err)
    announce(network, 40, workers=1)
    assert re.match(r"About \d+ hours: 40 trainings of 100 owners", capsys.readouterr().err)


def test_the_expected_time_grows_with_rounds() -> None:
    one = training_seconds(Scenario.from_preset("market", model="cnn", rounds=1))
    assert training_seconds(Scenario.from_preset("market", model="cnn", rounds=7)) == (
        pytest.approx(7 * one)
    )


def test_a_target_is_compared_with_the_result() -> None:
    assert against(90.0, [91.234]) == "The target of 90 % is met: 91.23 %."
    assert against(90.0, [89.5]) == "The target of 90 % is missed by 0.50 points."
    assert against(90.0, [89.5, 89.8]).endswith("0.50 points.")
    assert "0.50 points: the loss surface predicts the mean" in against(90.0, [89.5, 90.1])
    assert "not known" in against(90.0, [None])
