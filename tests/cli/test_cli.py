"""The command line as a user meets it: exit codes, run folders, and processes cut off."""

from __future__ import annotations

import csv
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import (
    PATIENCE,
    assert_sentence,
    call,
    call_here,
    command,
    has_lines,
    wait_until,
)

from noisemarket.market.negotiation import negotiate
from noisemarket.market.run_folder import RunFolder
from noisemarket.scenario import load_scenario
from noisemarket.study.reproduce import VERDICTS

pytestmark = pytest.mark.process

SMALL = ["--mechanism", "dypp", "--set", "owners=6", "--set", "iterations=400"]
REQUIRED = {
    "preset", "mechanism", "owners", "iterations", "seed", "mean_saving", "mean_payment",
    "mean_owner_payoff", "curator_gain", "signed_share", "converged_at", "equilibrium",
    "first_best", "exploitability",
}  # fmt: skip


SLOW_TO_IMPORT = {"cryptography", "matplotlib", "numba", "scipy", "sqlalchemy", "torch"}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_negotiate_writes_a_run_folder_that_can_be_run_again(tmp_path: Path) -> None:
    first = call("negotiate", *SMALL, "--figures", "--out", "one", "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    summary = json.loads(first.stdout)
    assert set(summary) >= REQUIRED
    assert set(summary["equilibrium"]) >= {"mean_saving", "mean_payment", "curator_gain"}
    folder = tmp_path / "one"
    assert json.loads((folder / "status.json").read_text())["state"] == "complete"
    assert json.loads((folder / "summary.json").read_text()) == summary
    for ending in ("png", "svg"):
        assert (folder / "figures" / f"curves.{ending}").stat().st_size > 2000
    again = call_here("negotiate", "one/scenario.toml", "--out", "two", "--json", cwd=tmp_path)
    assert not (tmp_path / "two" / "figures").exists()
    assert json.loads(again.stdout) == summary
    for name in ("contracts.csv", "trace.csv", "scenario.toml"):
        assert (folder / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "needed"),
    [(["--help"], set()), (["negotiate", "--mechanism", "clock", "--json"], set()),
     (["negotiate", *SMALL], {"numba", "scipy"})],
)  # fmt: skip
def test_a_command_imports_what_it_uses(words: list[str], needed: set[str], tmp_path: Path) -> None:
    """Numba itself imports SciPy."""
    script = f"""
import atexit, sys
from noisemarket.cli import main
atexit.register(lambda: print(*({SLOW_TO_IMPORT} & set(sys.modules)), file=sys.stderr))
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stderr.splitlines()[-1].split()) == needed


def test_contracts_file_agrees_with_the_summary(tmp_path: Path) -> None:
    done = call_here("negotiate", *SMALL, "--out", "r", "--json", cwd=tmp_path)
    summary, rows = json.loads(done.stdout), rows_of(tmp_path / "r" / "contracts.csv")
    assert list(rows[0]) == [
        "owner", "privacy_cost", "beta", "saving", "sigma", "payment", "signed",
    ]  # fmt: skip
    assert len(rows) == 6
    savings = [float(row["saving"]) for row in rows]
    assert sum(savings) / 6 == pytest.approx(summary["mean_saving"])
    assert sum(float(row["payment"]) for row in rows) / 6 == pytest.approx(summary["mean_payment"])
    assert all(float(r["saving"]) + float(r["sigma"]) == pytest.approx(0.6) for r in rows)
    assert {row["signed"] for row in rows} <= {"true", "false"}


def test_threads_change_nothing(tmp_path: Path) -> None:
    outputs = {
        call_here("negotiate", *SMALL, "--workers", n, "--out", n, "--json", cwd=tmp_path).stdout
        for n in ("1", "2", "5")
    }
    assert len(outputs) == 1


def test_table_names_every_figure(tmp_path: Path) -> None:
    done = call_here("negotiate", *SMALL, "--preset", "paper", "--out", "r", cwd=tmp_path)
    for words in (
        "saving", "payment", "owner's payoff", "curator's payoff", "signed contract",
        "iterations to converge", "exact equilibrium", "first best", "Run folder: r",
    ):  # fmt: skip
        assert words in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["negotiate", "--set", "K=0"], "game.payment_levels is 0"),
        (["negotiate", "--set", "J=0"], "game.saving_levels is 0"),
        (["negotiate", "--set", "discount=1"], "learning.discount is 1"),
        (["negotiate", "--set", "discount=-0.1"], "learning.discount is -0.1"),
        (["negotiate", "--set", "payment_cost=-1"], "game.payment_cost is -1"),
        (["negotiate", "--set", "sigma_max=inf"], "game.sigma_max is inf"),
        (["negotiate", "--set", "nonsense=1"], "nonsense is 1: unknown key"),
        (["negotiate", "--set", "owners"], "key=value"),
        (["negotiate", "--set", "surface=moon"], "surface is moon"),
        (["negotiate", "--mechanism", "nobody"], "mechanism is nobody"),
        (["compare", "--mechanisms", "dypp,dypp"], "--mechanisms"),
        (["negotiate", "--preset", "moon"], "preset is moon"),
        (["negotiate", "--workers", "0"], "--workers"),
        (["negotiate", "--seed", "-3"], "seed is -3"),
        (["negotiate", "--seed", "x"], "--seed"),
        (["negotiate", "no-such.toml"], "no-such.toml"),
        (["negotiate", "--set", 'privacy_cost={distribution="x"}'], "privacy_cost.distribution"),
        (["negotiate", "--set", "file=missing.csv"], "missing.csv"),
        (["compare", "--mechanisms", "nobody"], "mechanism is nobody"),
        (["compare", "--budgets", "30,lots"], "--budgets is lots"),
        (["compare", "--budgets", "-3"], "--budgets is -3"),
        (["compare", "--budgets", "nan"], "--budgets is nan"),
        (["compare", "--budgets", "100,1e2"], "name each budget once"),
        (
            ["run", "--mechanism", "pac_auction", "--target-accuracy", "94"],
            "aims at no accuracy: choose --mechanism clock or best_portfolio.",
        ),
        (["compare", "--seeds", "0"], "--seeds"),
        (["compare", "--workers", "0"], "--workers"),
        (["compare", "--resume", "nothing"], "is not the folder of a comparison"),
        (["compare", "--resume", "nothing", "--seeds", "3"], "--seeds 3 cannot be given with"),
        (["compare", "--game-only", "--seeds", "3"], "--seeds 3 is for trained comparisons"),
        (["compare", "--set", "weighting=equal"], "or leave clock out of the comparison"),
        (["negotiate", "--mechanism", "dypp", "--budget", "10"], "--budget is 10: dypp buys from"),
        (["negotiate", "--budget", "-10"], "market.budget is -10"),
        (["negotiate", "--mechanism", "clock", "--target-accuracy", "99.9"], "is out of reach"),
        (["run", "--target-accuracy", "94"], "dypp buys from each owner alone"),
        (["reproduce", "--seeds", "1", "--out", "r"], "--seeds"),
        (["reproduce", "no.toml", "--out", "r"], "no.toml"),
        (["reproduce", "--set", "iterations=99", "--out", "r"], "learning.iterations is 99"),
        (["negotiate", "--frobnicate"], "--frobnicate"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, words: list[str], said: str
) -> None:
    done = call_here(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_bad_input_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = call("negotiate", "--set", "K=0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert_sentence(done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("privacy_cost,data_size,beta,markup\n1,600,nan,0\n", "beta in line 2"),
        ("privacy_cost,data_size,beta,markup\n-1,600,1,0\n", "privacy_cost in line 2"),
    ],
)
def test_bad_owners_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "owners.csv").write_text(text)
    done = call_here("negotiate", "--set", "file=owners.csv", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


def test_owners_file_travels_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "people.txt").write_text(
        "owner,privacy_cost,data_size,beta,markup\nada,0.5,600,1,0.2\nbob,2,600,5,0.1\n"
    )
    words = ["--set", "file=people.txt", "--set", "iterations=300", "--out", "r", "--json"]
    first = call_here("negotiate", *words, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert [row["owner"] for row in rows_of(tmp_path / "r" / "contracts.csv")] == ["ada", "bob"]
    assert (tmp_path / "r" / "owners.csv").is_file()
    (tmp_path / "people.txt").unlink()
    again = call_here("negotiate", "r/scenario.toml", "--out", "s", "--json", cwd=tmp_path)
    assert json.loads(again.stdout) == json.loads(first.stdout)


def test_existing_folder_is_not_overwritten_unasked(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    for more in ([], ["--overwrite"]):
        done = call_here("negotiate", *SMALL, "--out", "mine", *more, cwd=tmp_path)
        assert done.returncode == 2
        assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    for more, code in (([], 0), ([], 2), (["--overwrite"], 0)):
        assert call_here("negotiate", *SMALL, "--out", "r", *more, cwd=tmp_path).returncode == code


def test_out_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = call_here("negotiate", *SMALL, "--out", "file/below", cwd=tmp_path)
    assert done.returncode == 2
    assert "--out file/below" in done.stderr


def test_a_run_whose_scenario_cannot_be_kept_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RunFolder, name: str, text: str, *, private: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_text", full)
    done = call_here("negotiate", *SMALL, "--out", "r", cwd=tmp_path)
    assert done.returncode == 1
    assert json.loads((tmp_path / "r" / "status.json").read_text())["state"] == "incomplete"


def test_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("scenario"), stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert_sentence(done.stderr)
    assert "standard output cannot be written: No space left on device." in done.stderr


@pytest.mark.parametrize(("given", "seen"), [(None, False), ("default", True)])
def test_warnings_of_libraries_are_for_who_asks(
    given: str | None, seen: bool, tmp_path: Path
) -> None:
    code = (
        "import sys, warnings, logging\n"
        "from noisemarket.cli import main\n"
        "sys.argv = ['noisemarket', '--version']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "warnings.warn('overflow in exp', RuntimeWarning)\n"
        "logging.getLogger('matplotlib.font_manager').warning('findfont: overflow')\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False,
        env=env | ({} if given is None else {"PYTHONWARNINGS": given}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ("overflow in exp" in done.stderr, "findfont" in done.stderr) == (seen, seen)


def test_sigterm_ends_a_command_that_keeps_nothing_with_a_sentence(tmp_path: Path) -> None:
    words = command("audit", "--trials", "1000000", "--out", "r")
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        wait_until((tmp_path / "r" / "scenario.toml").exists, run)
        run.send_signal(signal.SIGTERM)
        assert run.communicate(timeout=PATIENCE)[1].endswith("noisemarket: Interrupted.\n")
    assert run.returncode == 130
    assert json.loads((tmp_path / "r" / "status.json").read_text())["state"] == "incomplete"


@pytest.mark.parametrize(("number", "threads"), [(signal.SIGINT, 2), (signal.SIGTERM, 1)])
def test_interrupted_run_keeps_finished_owners(
    tmp_path: Path, number: signal.Signals, threads: int
) -> None:
    words = ["negotiate", "--mechanism", "dypp", "--set", "owners=80000"]
    words += ["--set", "iterations=5000", "--workers", str(threads), "--out", "r"]
    with subprocess.Popen(
        command(*words),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as run:
        wait_until(lambda: has_lines(tmp_path / "r" / "events.jsonl", 2), run)
        run.send_signal(number)
        assert run.stderr is not None
        said = run.stderr.read()
        code = run.wait(timeout=PATIENCE)
    assert code == 130
    assert "incomplete" in said
    state = json.loads((tmp_path / "r" / "status.json").read_text())
    rows = rows_of(tmp_path / "r" / "contracts.csv")
    assert state["state"] == "incomplete"
    assert 0 < len(rows) == state["owners_done"] < 80000
    fewer = [word.replace("owners=80000", "owners=100") for word in words[:-1]]
    whole = call_here(*fewer, "whole", cwd=tmp_path)
    assert whole.returncode == 0
    finished = {row["owner"]: row for row in rows}
    alone = rows_of(tmp_path / "whole" / "contracts.csv")
    both = [row for row in alone if row["owner"] in finished]
    assert both
    assert [finished[row["owner"]] for row in both] == both


def test_dynamic_environment_reports_recovery(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "owners = 20\niterations = 4000\n"
        "[[changes]]\nat = 2000\nscale = { privacy_cost = 0.3 }\n"
        "[[changes]]\nat = 3000\nset = { quality_weight = 0.3 }\n"
    )
    words = ["compare", "s.toml", "--game-only", "--mechanisms", "dypp,q_learning", "--json"]
    done = call_here(*words, "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["mechanisms"]
    assert [len(row["recovery"]) for row in rows] == [2, 2]
    single = call_here("negotiate", "s.toml", "--mechanism", "dypp", "--out", "n", cwd=tmp_path)
    assert "iterations to recover from the change at 2,000" in single.stdout
    points = rows_of(tmp_path / "r" / "curves.csv")
    assert [*dict.fromkeys(point["mechanism"] for point in points)] == [
        "equilibrium", "dypp", "q_learning",
    ]  # fmt: skip
    trace = rows_of(tmp_path / "n" / "trace.csv")
    own = [point for point in points if point["mechanism"] == "dypp"]
    for point, block in zip(own, trace, strict=True):
        assert [point[name] for name in ("iteration", "saving", "payment")] == [
            block[name] for name in ("iteration", "saving", "payment")
        ]
    exact = {int(point["iteration"]): float(point["saving"]) for point in points[: len(trace)]}
    assert len({exact[at] for at in (50, 1000, 2000)}) == 1
    assert exact[2000] < exact[2050] == exact[3000] > exact[3050], "a line for each preference"
    assert (tmp_path / "r" / "figures" / "curves.svg").exists()


@pytest.mark.usefixtures("undrawn")
def test_compare_covers_every_mechanism(tmp_path: Path) -> None:
    done = call_here("compare", *SMALL[2:], "--game-only", "--out", "r", "--json", cwd=tmp_path)
    names = {row["mechanism"] for row in json.loads(done.stdout)["mechanisms"]}
    assert names >= {"dypp", "q_learning", "greedy", "pain_fl", "uniform", "no_dp", "first_best"}
    assert len(rows_of(tmp_path / "r" / "comparison.csv")) == len(names)
    learners = {point["mechanism"] for point in rows_of(tmp_path / "r" / "curves.csv")}
    assert learners == {"equilibrium", "dypp", "phc", "q_learning", "greedy"}


def test_a_comparison_without_learners_has_no_curves(tmp_path: Path) -> None:
    words = ["compare", *SMALL[2:], "--game-only", "--mechanisms", "clock,uniform", "--out", "r"]
    done = call_here(*words, "--set", "currency=EUR", cwd=tmp_path)
    assert "money in EUR" in done.stdout
    assert "clock auction" in done.stdout
    assert "no trade" in done.stdout
    assert "uniform" not in done.stdout
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "r" / "curves.csv").exists()
    assert "curves" not in done.stdout


def test_reproduce_small(tmp_path: Path) -> None:
    words = [
        "reproduce",
        "--seeds",
        "2",
        "--set",
        "owners=5",
        "--set",
        "iterations=500",
        "--out",
        "r",
    ]
    done = call_here(*words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    verdicts = json.loads(done.stdout)
    assert {v["scenario"] for v in verdicts} == {"paper", "market"}
    assert len(verdicts) == 18
    page = (tmp_path / "r" / "reproduction.md").read_text()
    assert all(verdict["claim"] in page for verdict in verdicts)
    assert VERDICTS in page
    for stem in ("convergence-saving", "convergence-payment"):
        assert all((tmp_path / "r" / f"{stem}.{end}").exists() for end in ("png", "svg", "csv"))


def test_reproduce_on_a_scenario_of_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "owners = 4\niterations = 5000\nseed = 7\nsurface = 'printed'\nquality_value = 0.3\n"
        "[[changes]]\nat = 2000\nscale = { privacy_cost = 0.3 }\n"
    )
    words = ["reproduce", "mine.toml", "--seeds", "2", "--set", "iterations=600", "--out", "r"]
    done = call_here(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout
    verdicts = json.loads((tmp_path / "r" / "claims.json").read_text())
    assert {v["scenario"] for v in verdicts} == {"mine"}
    assert len(verdicts) == 10
    played = load_scenario(tmp_path / "r" / "scenario.toml")
    assert (played.population.owners, played.learning.iterations) == (4, 600)
    assert (played.seed, played.game.quality_value, played.changes) == (7, 0.3, ())
    page = (tmp_path / "r" / "reproduction.md").read_text()
    assert "The paper's claims on a scenario: mine" in page
    assert "`noisemarket reproduce mine.toml --seeds 2 --set iterations=600 --out r`" in page
    assert "as printed (`paper`)" not in page
    rows = rows_of(tmp_path / "r" / "convergence-saving.csv")
    assert {row["scenario"] for row in rows} == {"mine"}
    last = [row for row in rows if (row["learner"], row["iteration"]) == ("dypp", "600")]
    each = [
        negotiate(played.model_copy(update={"seed": seed}), mechanism="dypp") for seed in (7, 8)
    ]
    savings = [one.agreement.trace.saving[-1] for one in each if one.agreement.trace]
    assert float(last[0]["mean"]) == pytest.approx(sum(savings) / 2)
    again = call_here("reproduce", "--set", "owners=3", "--out", "r", cwd=tmp_path)
    assert again.returncode == 2, "the folder holds another run"


def test_scenario_command_round_trips(tmp_path: Path) -> None:
    done = call_here("scenario", "--preset", "paper", "--set", "N=7", cwd=tmp_path)
    (tmp_path / "s.toml").write_text(done.stdout)
    assert load_scenario(tmp_path / "s.toml") == load_scenario(preset="paper", settings=["N=7"])
    assert "learning.discount" in call_here("scenario", "--explain", cwd=tmp_path).stdout


def test_help_does_not_import_the_heavy_parts(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from noisemarket.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as done:\n    assert done.code == 0\n"
        "heavy = {'numpy', 'numba', 'scipy', 'matplotlib', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["--owners=1"], ["--owners=1", "--iterations=1"]])
def test_smallest_markets(tmp_path: Path, words: list[str]) -> None:
    settings = [part for word in words for part in ("--set", word[2:])]
    for preset in ("market", "paper"):
        done = call_here("negotiate", "--preset", preset, *settings, "--out", preset, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
