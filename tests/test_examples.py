"""Every example runs as it is, in a process of its own, and says what its text promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import call_here, one_core

from noisemarket.federated.data_files import load_data

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, *words: str, cwd: Path) -> str:
    """What an example prints."""
    with one_core():
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / name), *words], cwd=cwd, capture_output=True,
            text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_own_model(tmp_path: Path) -> None:
    said = run("own_model.py", cwd=tmp_path)
    rounds = re.findall(r"^round +\d+: ([\d.]+) %$", said, re.MULTILINE)
    assert len(rounds) == 8
    assert float(rounds[-1]) > 50  # one class in three, unevenly: guessing gives about 40
    *_, noisy, quiet = said.splitlines()
    assert noisy.startswith("Owner 0, protection sharded, noise sigma 0.3, 8 uploads")
    assert quiet.startswith("Owner 1, protection sharded, noise sigma 0.1, 8 uploads")
    epsilons = [float(word) for word in re.findall(r"epsilon ([\d.]+) at delta", said)]
    assert 0 < epsilons[0] < epsilons[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("undrawn")
def test_own_features(tmp_path: Path) -> None:
    said = run("own_features.py", "mine", cwd=tmp_path)
    noisy, quiet = re.findall(r"^sigma [\d.]+: ([\d.]+) %, epsilon ([\d.]+)$", said, re.MULTILINE)
    assert 20 < float(noisy[0]) < float(quiet[0])  # one class in ten: guessing gives 10
    assert float(quiet[0]) > 70
    assert 0 < float(noisy[1]) < float(quiet[1])
    data = load_data(str(tmp_path / "mine"))
    assert data.train_inputs().shape == (12_000, 256)
    command = said.splitlines()[-1].split()
    assert command[:4] == ["noisemarket", "run", "--set", "data=mine"]
    short = "--no-baselines", "--set", "rounds=1", "--set", "iterations=10", "--workers", "1"
    done = call_here(*command[1:], *short, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_tour_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """With a smaller comparison at its end: its time is the training of many models."""
    import nbformat  # slow to import, and this test alone needs it
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)  # kept without results
    (campaign,) = [cell for cell in notebook.cells if "training.rounds = 6" in cell.source]
    campaign.source = campaign.source.replace("owners = 40", "owners = 12")
    campaign.source = campaign.source.replace("rounds = 6", "rounds = 2")
    with one_core():
        place = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, timeout=300, resources=place).execute()
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    said = "\n".join(str(one.get("text", "")) for one in outputs)
    without, under = map(float, re.findall(r"([\d.]+) % (?:without|under)", said))
    assert 20 < without < under
    sold = re.findall(r"^owner (\d+) keeps noise 0\.1 and is paid", said, re.MULTILINE)
    assert sold
    assert f"Owner {sold[0]}, protection per_record, noise sigma 0.1, 6 uploads" in said
    assert "Sound: " in said
    assert "with full knowledge" in said
    assert sum("image/png" in one.get("data", {}) for one in outputs) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_readme_names_every_example() -> None:
    said = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for file in EXAMPLES.iterdir():
        if file.is_file() and file.name != "README.md":
            assert f"[{file.name}]({file.name})" in said, file.name
