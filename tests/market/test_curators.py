"""Curators at once on the same owners, in small, and what the campaign notices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.ledger.processes import ROOT
from tests.market.common import here, scenario
from tests.market.curators import OWNERS, ROUNDS, Violation, ended_well, look, wallets

from noisemarket.market import events
from noisemarket.owner.folder import STATEMENT

pytestmark = pytest.mark.training


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_eight_curators_killed_at_random() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.market.curators", "--kills", "10", "--seed", "1"],
        cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("10 kills of 8 curators at once: all held.\n")


def test_every_kind_of_damage_is_noticed(images: Path, tmp_path: Path) -> None:
    root, run = tmp_path / "consortium", tmp_path / "run"
    made = scenario(images, owners=OWNERS, rounds=ROUNDS, model="features", rho_budget=1e3)
    for event in here(made, run, owners=root):
        if isinstance(event, events.RoundTrained):
            break
    look(root, 1e3)
    with pytest.raises(Violation, match="passed its budget"):
        look(root, 1e-9)
    with pytest.raises(Violation, match="keeps a reservation"):
        ended_well(root, [run])
    wallet = wallets(root)[0]
    (job,) = wallet.account().open
    wallet.free(job)
    with pytest.raises(Violation, match="lost the reservation"):
        look(root, 1e3)
    (wallet.folder / "jobs" / job / STATEMENT).write_text("{}")
    look(root, 1e3)
    other = wallets(root)[1]
    other.spend(job, 2, "never released, and too cheap", 1e-6)
    with pytest.raises(Violation, match="wallets and journals differ"):
        ended_well(root, [run])
    with pytest.raises(Violation, match="dp_accounting says"):
        look(root, 1e3)
