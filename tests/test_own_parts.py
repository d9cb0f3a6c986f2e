"""A mechanism and a learning rule that an installed package of the user's own brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = """
import numpy as np
from noisemarket import Rule
from noisemarket.mechanisms.mechanism import Direct, same_for_all


class Half(Direct):
    knows = "nothing"

    def contracts(self, environment, options):
        return same_for_all(len(environment), environment.levels.saving_levels // 2, 0)


class Lowest(Rule):
    def act(self, state, uniform):
        return 0

    def learn(self, state, action, reward, next_state, t):
        pass

    def policy(self):
        return np.eye(self.values.shape[1])[np.zeros(len(self.values), int)]


class Unfinished(Rule):
    pass
"""

ENTRY_POINTS = """
[noisemarket.mechanisms]
half = own_parts:Half
dypp = own_parts:Half
text = own_parts:__name__

[noisemarket.rules]
lowest = own_parts:Lowest
unfinished = own_parts:Unfinished
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as an installer leaves it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "own_parts.py").write_text(PACKAGE, encoding="utf-8")
    info = folder / "own_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: own-parts\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return folder


def call(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "noisemarket", *words],
        cwd=site, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


@pytest.mark.process
def test_the_command_line_knows_them(site: Path) -> None:
    words = ["--set", "owners=4", "--set", "iterations=60", "--json"]
    done = call(site, "compare", "--mechanisms", "half,lowest,uniform", *words)
    assert done.returncode == 0, done.stderr
    half, lowest, uniform = json.loads(done.stdout)["mechanisms"]
    assert (half["mechanism"], half["knows"]) == ("half", "nothing")
    assert half["mean_saving"] == pytest.approx(0.3)
    assert (lowest["mechanism"], lowest["knows"]) == ("lowest", "nothing private")
    assert lowest["mean_saving"] == uniform["mean_saving"] == 0.0


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text", "mechanism = text: cannot be loaded from own_parts:__name__ (TypeError"),
        ("unfinished", "rule = unfinished: cannot be loaded from own_parts:Unfinished (TypeError"),
        ("nobody", "first_best, half, text, lowest, unfinished."),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(
    site: Path, name: str, message: str
) -> None:
    done = call(site, "negotiate", "--mechanism", name)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
