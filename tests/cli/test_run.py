"""``noisemarket run`` as a user meets it, on a few images of MNIST: processes and kills."""

from __future__ import annotations

import csv
import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.small_jobs import PLAYED, fails, run_words
from tests.commands import (
    PATIENCE,
    call,
    call_here,
    command,
    has_lines,
    wait_until,
)
from tests.market.common import state, write_images

from noisemarket.cli import main
from noisemarket.ledger.queries import contracts
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.run_folder import RunFolder
from noisemarket.privacy.accountant import read_journal

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent.parent
OWNERS, ROUNDS = 3, PLAYED
COST, MARKUP, WEIGHT = 2.3987123, 0.1763452, 0.6172839


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("mnist"))


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("people") / "people.csv"
    rows = "".join(f"o{i},{i + COST},40,1,{MARKUP}\n" for i in range(OWNERS))
    file.write_text("owner,privacy_cost,data_size,beta,markup\n" + rows)
    return str(file)


Whole = tuple[Path, dict[str, Any], str]


@pytest.fixture(scope="module")
def whole(images: Path, people: str, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A run from start to end, with its baselines."""
    parent = tmp_path_factory.mktemp("runs")
    given = run_words(images, file=people, quality_weight=WEIGHT)
    done = call(*given, "--out", "whole", "--draws", "2", "--json", cwd=parent)
    assert done.returncode == 0, done.stderr
    return parent / "whole", json.loads(done.stdout), done.stderr


def test_a_run_leaves_everything_in_its_folder(whole: Whole) -> None:
    folder, summary, _ = whole
    assert {path.name for path in folder.iterdir()} == {
        "scenario.toml", "owners.csv", "market.json", "ledger.sqlite", "curator", "owners",
        "baselines", "summary.json", "contracts.csv", "status.json", "figures", "outcome.json",
    }  # fmt: skip
    assert {path.name for path in (folder / "curator").iterdir()} == {
        "signing-key.pem", "checkpoint.npz", "metrics.jsonl", "model.npz", "head.json",
        "receipts.jsonl", "events.jsonl",
    }  # fmt: skip
    assert {path.name for path in (folder / "owners" / "owner-o1").iterdir()} == {
        "signing-key.pem", "private.json", "contract.json", "statement.json",
        "signing-receipt.json", "settlement-receipt.json",
    }  # fmt: skip
    assert {path.name for path in (folder / "figures").iterdir()} == {"market.png", "market.svg"}
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["rounds"], status["secure_noise"]) == (
        "complete",
        ROUNDS,
        False,
    )
    assert status["engine"] == "embedded"
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert summary["contracts_kept"] == summary["trades"] == OWNERS
    assert summary["total_paid"] > 0
    assert len(summary["accuracy_per_round"]) == ROUNDS
    for name in ("uniform_dp", "no_dp"):
        assert 0 <= summary[f"{name}_accuracy"] <= 100
        journal = read_journal(folder / "baselines" / f"{name}.journal")
        sigma = {budget.sigma for budget in journal.budgets}
        assert sigma == {0.6 if name == "uniform_dp" else 0.0}
    others = {one["name"]: one for one in summary["alternatives"]}
    trained = {"uniform_dp", "uniform_dp-2", "market-2", "no_dp"}
    for name in {"dypp", "best_portfolio"} & others.keys():
        if others[name]["same_as"] is None:
            trained |= {name, f"{name}-2"}
    assert {path.stem for path in (folder / "baselines").glob("*.npz")} == trained
    assert [len(summary["accuracies"][name]) for name in ("market", "uniform_dp", "no_dp")] == [
        2, 2, 1,
    ]  # fmt: skip
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder / "baselines").iterdir()}
    assert set(modes.values()) == {0o600}, "what was trained without noise is the user's alone"
    assert (folder / "baselines").stat().st_mode & 0o777 == 0o700
    # The baselines are no part of the job.
    assert len(read_journal(folder / "owners" / "privacy.journal").charges) == OWNERS * ROUNDS


def test_the_market_stands_beside_what_else_could_have_been_bought(whole: Whole) -> None:
    """The figures of the comparison, from the files of the run and the owners' secrets."""
    folder, summary, _ = whole
    rows = {one["name"]: one for one in summary["alternatives"]}
    assert list(rows) == ["uniform_dp", "dypp", "market", "best_portfolio", "no_dp"]
    own, nothing, best = rows["market"], rows["uniform_dp"], rows["best_portfolio"]
    with (folder / "contracts.csv").open() as file:
        sold = list(csv.DictReader(file))
    cost = [i + COST for i in range(OWNERS)]
    surplus = sum(
        0.08 * float(one["paid"]) - 2.5 * c * float(one["saving"])
        for c, one in zip(cost, sold, strict=True)
    )
    assert own["owners_surplus"] == pytest.approx(surplus)
    assert own["paid"] == pytest.approx(summary["total_paid"])
    assert own["sellers"] == OWNERS
    assert own["accuracies"] == summary["accuracies"]["market"]
    assert own["effective_noise"] == pytest.approx(summary["effective_noise"])
    before = max(budget_epsilon for budget_epsilon in (float(row["epsilon"]) for row in sold))
    assert 0 < own["epsilon_sold"] < OWNERS * before
    assert (nothing["paid"], nothing["predicted_value"], nothing["owners_surplus"]) == (0, 0, 0)
    assert nothing["epsilon_sold"] == nothing["sellers"] == 0
    assert best["predicted_value"] >= max(own["predicted_value"], 0)
    assert best["paid"] <= own["paid"], "without a budget it has the market's money"
    assert best["owners_surplus"] >= -1e-9
    assert rows["no_dp"]["epsilon_sold"] is rows["no_dp"]["predicted_value"] is None
    for one in rows.values():
        assert one["mean_accuracy"] == pytest.approx(np.mean(one["accuracies"]))
        twin = one["same_as"]
        assert twin is None or rows[twin]["accuracies"] == one["accuracies"]


def test_every_owner_has_its_weight_in_the_report_and_on_the_ledger(whole: Whole) -> None:
    folder, summary, _ = whole
    with (folder / "contracts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["owner"] for row in rows] == ["o0", "o1", "o2"]
    weights = [float(row["weight"]) for row in rows]
    sigma = np.array([float(row["sigma"]) for row in rows])
    expected = 1.0 / (sigma**2 + 1.0 / 40 + 0.04 / 11**2)  # 40 records of each, beta 1
    assert weights == pytest.approx(expected / expected.sum())
    with open_ledger(folder, create=False) as ledger:
        assert [one.weight for one in contracts(ledger)] == pytest.approx(weights)
    assert sum(float(row["paid"]) for row in rows) == pytest.approx(summary["total_paid"])
    noise = np.sqrt(3 * (expected**2 * sigma**2).sum()) / expected.sum()
    assert summary["effective_noise"] == pytest.approx(noise)


def test_progress_goes_to_standard_error_and_tells_no_secret(whole: Whole) -> None:
    folder, _, said = whole
    lines = said.splitlines()
    baselines = len(list((folder / "baselines").glob("*.npz")))
    assert [line.partition(":")[0] for line in lines] == [
        "Negotiated", "Trained under 3 contracts", "Settled",
        *["Trained for comparison"] * baselines,
    ]  # fmt: skip
    for draw in (1, 2):
        assert sum(f"no trade, draw {draw} of 2, accuracy " in line for line in lines) == 1
    told = said + (folder / "summary.json").read_text() + (folder / "status.json").read_text()
    for secret in (COST, MARKUP, WEIGHT):
        assert repr(secret)[2:] not in told


def test_the_ledger_is_at_hand(whole: Whole, capsys: pytest.CaptureFixture[str]) -> None:
    folder, summary, _ = whole

    def ask(*arguments: str) -> Any:
        with pytest.raises(SystemExit) as end:
            main(["ledger", *arguments, "--json"])
        assert not end.value.code
        return json.loads(capsys.readouterr().out)

    assert ask("verify", str(folder))["head"] == summary["ledger_head"]
    assert ask("verify", str(folder), "--head", summary["ledger_head"])["sound"]
    assert len(ask("ls", str(folder))["contracts"]) == OWNERS
    (statement,) = ask("statement", str(folder), "o1")["contracts"]
    own = json.loads((folder / "owners" / "owner-o1" / "statement.json").read_text())
    assert statement["rho_total"] == pytest.approx(own["rho_total"])
    assert statement["epsilon"] == pytest.approx(own["epsilon"])
    assert statement["paid_micro"] == own["paid_micro"]


def test_every_json_key_is_documented(whole: Whole) -> None:
    page = (ROOT / "docs" / "reference" / "output.md").read_text(encoding="utf-8")
    part = page.partition("\n## JSON of run\n")[2].partition("\n## ")[0]
    assert part
    inner = {key for value in whole[1].values() if isinstance(value, dict) for key in value}
    assert {key for key in {*whole[1], *inner} if f"`{key}`" not in part} == set()


@pytest.mark.usefixtures("undrawn")
def test_killed_and_stopped_and_resumed(
    images: Path, people: str, whole: Whole, tmp_path: Path
) -> None:
    """Begun, killed in a round, stopped by Ctrl-C, ended."""
    folder, rng = tmp_path / "cut", random.Random(4)
    journal, metrics = folder / "owners/privacy.journal", folder / "curator/metrics.jsonl"

    run = [*run_words(images, file=people, quality_weight=WEIGHT), "--out", "cut"]
    for reached, number in (
        (lambda: has_lines(journal, 2), signal.SIGKILL),
        (lambda: has_lines(metrics, 2), signal.SIGINT),
    ):
        with subprocess.Popen(
            command(*run, "--no-baselines"), cwd=tmp_path, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            wait_until(reached, process, 0.002)
            process.send_signal(number)
            said = process.communicate(timeout=PATIENCE)[1]
        status = json.loads((folder / "status.json").read_text())
        if number == signal.SIGINT and process.returncode != 0:
            assert process.returncode == 130
            assert "Traceback" not in said
            assert said.splitlines()[-1].endswith("continue with --resume cut.")
            assert status["state"] == "incomplete"
        else:
            assert process.returncode in (0, -signal.SIGKILL)
        time.sleep(rng.uniform(0, 0.05))
        run = ["run", "--workers", "1", "--resume", "cut"]
    done = call_here("run", "--resume", "cut", "--no-baselines", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Ledger head: " in done.stdout
    assert "contracts kept, broken" in done.stdout
    figures = json.loads((folder / "summary.json").read_text())
    bought, without = (figures[f"predicted_{one}accuracy"] for one in ("", "no_trade_"))
    assert bought > without
    said = " ".join(done.stdout.split())
    assert f"accuracy, predicted │ {bought:.2f} % (no trade: {without:.2f} %)" in said
    assert f"over no trade, predicted │ {figures['predicted_value']:,.2f}" in said
    assert state(folder) == state(whole[0])
    with open_ledger(folder, create=False) as ledger:
        assert verify(ledger).jobs_settled == 1
    with np.load(folder / "curator" / "model.npz") as model:
        assert np.isfinite(model["weights"]).all()


def test_a_run_that_is_going_on_is_left_alone(
    images: Path, whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole[0], "r")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with RunFolder.reopen(Path("r")):
        before[tmp_path / "r/status.json"] = Path("r/status.json").read_bytes()
        before[tmp_path / "r/.lock"] = b""
        for arguments in (
            ["run", "--resume", "r"],
            [*run_words(images), "--out", "r", "--overwrite"],
        ):
            assert "r is in use by another run." in fails(arguments, capsys)
        after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert after == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--resume", "nothing"], "is not a run folder"),
        (["--resume", "empty"], "is not a run folder"),
        (["--resume", "file"], "is not a run folder"),
        (["--resume", "other"], "was written by another command"),
        (["--resume", "damaged"], "cannot be read"),
        (["--resume", "run", "--set", "rounds=3"], "with --resume: give only --engine"),
        (["--resume", "run", "--seed", "3"], "with --resume: give only --engine"),
        (["--resume", "run", "--mechanism", "dypp"], "with --resume: give only --engine"),
        (["--resume", "run", "--preset", "paper"], "with --resume: give only --engine"),
        (["--resume", "run", "--out", "x"], "with --resume: give only --engine"),
        (["--resume", "--out", "run"], "option --out cannot be given with --resume FOLDER: give"),
        (["--resume", "--draws", "2"], "option --draws is where --resume needs its folder"),
        (["--resume", "run", "--budget", "3"], "with --resume: give only --engine"),
        (["--resume", "run", "--target-accuracy", "90"], "with --resume: give only --engine"),
        (["--resume", "run", "--workers", "0"], "--workers"),
    ],
)
def test_what_cannot_be_resumed(
    whole: Whole, arguments: list[str], said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    scenario = (whole[0] / "scenario.toml").read_text()
    owners = (whole[0] / "owners.csv").read_text()
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, more in (("run", "curator"), ("other", "comparison.csv"), ("damaged", "market.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scenario.toml").write_text(scenario)
        (tmp_path / name / "owners.csv").write_text(owners)
        kind = "compare" if name == "other" else "run"
        (tmp_path / name / "status.json").write_text(json.dumps({"kind": kind}))
        if more != "curator":
            (tmp_path / name / more).write_text("{")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert said in fails(["run", *arguments], capsys)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    if "damaged" not in arguments:  # there, the status says that it is incomplete
        assert after == before
