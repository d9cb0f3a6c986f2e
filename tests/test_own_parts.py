"""Mechanisms, rules, protections and weightings of the user's own, by package.module:Name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import PATIENCE, assert_sentence
from tests.tiny_images import write_images

import noisemarket as nm
from noisemarket.cli import main
from noisemarket.game.environment import Contracts, Environment
from noisemarket.pricing.mechanism import Direct, RunOptions

PACKAGE = """
from dataclasses import dataclass

import numpy as np
from noisemarket import Rule
from noisemarket.federated.protections import Protection
from noisemarket.federated.aggregation import Weighting
from noisemarket.game.environment import Contracts
from noisemarket.pricing.mechanism import Direct


class Half(Direct):
    knows = "nothing"

    def contracts(self, environment, options):
        return Contracts.same(len(environment), environment.levels.saving_levels // 2, 0)


class Lowest(Rule):
    def act(self, state, uniform):
        return 0

    def learn(self, state, action, reward, next_state, t):
        pass

    def policy(self):
        return np.eye(self.values.shape[1])[np.zeros(len(self.values), int)]


class Unfinished(Rule):
    pass


@dataclass(frozen=True)
class OneStep(Protection):
    clip: float = 1.0
    strength: int = 50
    scenario_keys = {"clip": "privacy.clip"}

    def upload(self, task):
        from noisemarket.privacy.noise import add_noise

        summed = task.model.clipped_gradient(task.start, task.records, self.clip)
        return add_noise(-summed / np.float32(self.strength), task.sigma, task.noise)

    def sensitivity(self, dimension, records, neighbours):
        return neighbours.reach * self.clip / self.strength


class FirstOwner(Weighting):
    def weights(self, figures):
        return np.arange(len(figures)) == 0
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as an installer leaves it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "own_parts.py").write_text(PACKAGE, encoding="utf-8")
    write_images(folder, 120, 40)
    return folder


CALLS = """
import contextlib, io, json, sys
from matplotlib.figure import Figure
from noisemarket.cli import main

Figure.savefig = lambda figure, out, **options: out.write(b"not rendered")
done = []
for sys.argv[1:] in json.load(sys.stdin):
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            done.append([sys.argv[1:], end.code, out.getvalue(), said.getvalue()])
json.dump(done, sys.stdout)
"""


Done = subprocess.CompletedProcess[str]


def call_all(site: Path, commands: list[list[str]]) -> list[Done]:
    """Commands where the package is installed, one after the other in one process."""
    paths = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", CALLS], input=json.dumps(commands), cwd=site, capture_output=True,
        text=True, timeout=PATIENCE, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return [subprocess.CompletedProcess(*one) for one in json.loads(done.stdout)]


def compare() -> list[str]:
    words = ["--set", "owners=4", "--set", "iterations=60", "--json"]
    return [
        "compare",
        "--game-only",
        "--mechanisms",
        "own_parts:Half,own_parts:Lowest,uniform",
        *words,
    ]


@pytest.mark.process
def test_the_command_line_knows_them(told: dict[str, list[Done]]) -> None:
    (done,) = told["known"]
    assert done.returncode == 0, done.stderr
    half, lowest, uniform = json.loads(done.stdout)["mechanisms"]
    assert (half["mechanism"], half["knows"]) == ("own_parts:Half", "nothing")
    assert half["mean_saving"] == pytest.approx(0.3)
    assert (lowest["mechanism"], lowest["knows"]) == ("own_parts:Lowest", "nothing private")
    assert lowest["mean_saving"] == uniform["mean_saving"] == 0.0


class Returns(Direct):
    joint = True

    def __init__(self, saving: object, payment: object) -> None:
        self.made: Any = saving, payment

    def contracts(self, environment: Environment, options: RunOptions) -> Contracts:
        return Contracts(*map(np.array, self.made), np.ones(len(environment), dtype=bool))


WRONG = {
    "contracts() returned payment level 99: the last one is 32.": ([1, 1], [0, 99]),
    "contracts() returned saving level -1: the last one is 12.": ([-1, 1], [0, 0]),
    "Contracts whose payment has one level number for each of 2 owners.": ([1, 1], [0]),
    "Contracts whose saving has one level number for each of 2 owners.": ([0.5, 0.5], [0, 0]),
}


@pytest.mark.parametrize("message", WRONG)
def test_contracts_that_are_none_are_refused(message: str) -> None:
    scenario = nm.Scenario.from_preset("market", owners=2)
    with pytest.raises(nm.BadInput, match=re.escape(message)):
        nm.negotiate(scenario, mechanism=Returns(*WRONG[message]))


def test_a_module_of_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without PYTHONPATH; and the table is that of a mechanism that buys for one model."""
    (tmp_path / "mine_here.py").write_text(
        PACKAGE.replace('knows = "nothing"', "joint = True"), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = ["negotiate", "--mechanism", "mine_here:Half", "--set", "owners=4"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--set", "surface=printed"])
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    assert "owners that sell" in said.out
    assert [":" in path.name for path in (tmp_path / "runs").iterdir()] == [False]


REFUSED = {
    "own_parts:__name__": "own_parts:__name__",
    "own_parts:Unfinished": "lacks act, learn, policy",
    "nobody": "first_best; or give package.module:Name.",
    "dypq": "did you mean dypp?",
}


@pytest.mark.process
def test_what_cannot_be_used_is_refused_in_one_sentence(told: dict[str, list[Done]]) -> None:
    for done, message in zip(told["refused"], REFUSED.values(), strict=True):
        assert_refused(done, message)


def assert_refused(done: Done, message: str) -> None:
    assert done.returncode == 2
    assert message in done.stderr
    assert_sentence(done.stderr)


def small(site: Path, *settings: str) -> list[str]:
    """Options of a small market on a few images."""
    given = [
        f"data={site}", "owners=3", "rounds=2", "widths=[4,8,8]",
        "mechanism=equilibrium", "surface=printed", *settings,
    ]  # fmt: skip
    return [word for setting in given for word in ("--set", setting)]


def market(site: Path) -> list[list[str]]:
    own = ["protection=own_parts:OneStep", "privacy.settings.strength=40", "clip=0.5",
           "weighting=own_parts:FirstOwner"]  # fmt: skip
    short = ["--no-baselines", "--workers", "1", "--json"]
    return [
        ["run", *small(site, *own), *short, "--out", "market"],
        ["ledger", "export", "market", "--json", "chain.json"],
        ["ledger", "verify", "market"],
        ["privacy", "--set", "protection=own_parts:OneStep", "--sigma", "0.3", "--json"],
    ]


@pytest.mark.process
@pytest.mark.training
def test_a_market_runs_under_them(site: Path, told: dict[str, list[Done]]) -> None:
    done, shown, verified, again = told["market"]
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["broken"] == {}, "honest owners were accused"
    assert shown.returncode == 0, shown.stderr
    chain = (site / "chain.json").read_text(encoding="utf-8")
    assert "own_parts:OneStep" in chain
    assert "strength" in chain
    assert verified.returncode == 0
    assert json.loads(again.stdout)["sensitivity"] == 2 / 50


UNFIT = {
    "protection=two_steps": "choose one of: per_record, sharded, dp_sgd, paper; or give",
    "weighting=last": "choose one of: noise, data_size, equal; or give",
    "protection=own_parts:OneStep settings.other=1":
        "is not a setting of own_parts:OneStep, which has clip, strength.",
    "protection=own_parts:OneStep settings.clip=1": "give it as privacy.clip instead.",
}  # fmt: skip


@pytest.fixture(scope="module")
def told(site: Path) -> dict[str, list[Done]]:
    """What all these commands say, in one process: to start it takes longer than most of them."""
    refused = [["negotiate", "--mechanism", name] for name in REFUSED]
    unfit = [["run", *small(site, *words.split())] for words in UNFIT]
    groups = {"known": [compare()], "refused": refused, "market": market(site), "unfit": unfit}
    done = iter(call_all(site, [words for group in groups.values() for words in group]))
    return {name: [next(done) for _ in group] for name, group in groups.items()}


@pytest.mark.process
def test_settings_that_do_not_fit_are_refused(told: dict[str, list[Done]]) -> None:
    for done, message in zip(told["unfit"], UNFIT.values(), strict=True):
        assert_refused(done, message)


@pytest.mark.process
def test_the_documented_test_of_a_part_runs(tmp_path: Path) -> None:
    """The example of docs/how-to/extend.md, in a folder that knows nothing of this repository."""
    page = Path(__file__).parents[1] / "docs" / "how-to" / "extend.md"
    blocks = page.read_text(encoding="utf-8").split("```python\n")[1:]
    (example,) = [one for one in blocks if "WeightingConformance" in one]
    (tmp_path / "test_mine.py").write_text(example.split("```")[0], encoding="utf-8")
    shutil.copy(Path(__file__).parent / "conformance" / "weighting_suite.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.process
def test_the_documented_mechanism_is_compared(tmp_path: Path) -> None:
    """The script of docs/how-to/extend.md, with one seed: it trains, and keeps to its budgets."""
    page = Path(__file__).parents[1] / "docs" / "how-to" / "extend.md"
    blocks = page.read_text(encoding="utf-8").split("```python\n")[1:]
    (script,) = [one.split("```")[0] for one in blocks if "class PayAsBid" in one]
    assert len(script.partition("class ")[2].partition("\n\n\n")[0].splitlines()) <= 20
    assert "seeds=3" in script
    one_seed = script.replace("seeds=3", "seeds=1")
    (tmp_path / "pay_as_bid.py").write_text(one_seed, encoding="utf-8")
    command = [sys.executable, "pay_as_bid.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert {(row[0], row[1], row[2]) for row in rows} == {
        (name, budget, seed)
        for name in ("uniform", "clock", "PayAsBid")
        for budget in ("30.0", "100.0")
        for seed in "1"
    }
    own = [row for row in rows if row[0] == "PayAsBid"]
    assert all(int(row[3]) > 0 and 0 < float(row[4]) <= float(row[1]) for row in own)
    base = {row[2]: float(row[5]) for row in rows if row[0] == "uniform"}
    assert all(float(row[5]) != base[row[2]] for row in own), "what was bought was trained"
    assert [path.name for path in tmp_path.iterdir()] == ["pay_as_bid.py"]
