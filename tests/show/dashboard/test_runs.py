"""What the pages read of run folders is what the command line and the files say."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from tests.commands import call_here
from tests.ledger.tampering import drop_guards, execute
from tests.show.dashboard.asgi import Client
from tests.show.dashboard.conftest import Get

from noisemarket.show.dashboard.live import RunReader
from noisemarket.show.dashboard.run_store import RunStore
from noisemarket.show.dashboard.web_app import web_app

pytestmark = pytest.mark.process


def test_the_list_of_runs(get: Get, runs: Path) -> None:
    found = {one["name"]: one for one in get("runs")}
    assert {name: one["kind"] for name, one in found.items()} == {
        "market": "run", "game": "negotiate", "compared": "compare", "season": "season",
        "reproduction": "reproduction",
    }  # fmt: skip
    assert {one["state"] for one in found.values()} == {"complete"}
    summary = json.loads((runs / "market" / "summary.json").read_text())
    market = found["market"]
    assert (market["accuracy"], market["paid"]) == (
        summary["mean_accuracy"], summary["total_paid"],
    )  # fmt: skip
    assert (market["mechanism"], market["preset"], market["owners"]) == ("equilibrium", "market", 3)
    assert (market["draws"], market["after_rounds"]) == (1, None)
    assert {name: one["currency"] for name, one in found.items()} == {
        "market": "EUR", "game": "units", "compared": "units", "season": "EUR",
        "reproduction": "units",
    }  # fmt: skip


def test_an_audit_is_listed_as_one(tmp_path: Path) -> None:
    folder = tmp_path / "leaks"
    folder.mkdir()
    (folder / "scenario.toml").write_text('preset = "market"')
    (folder / "status.json").write_text('{"state": "running", "kind": "audit"}')  # no file yet
    (one,) = RunStore(tmp_path).listing()
    assert (one["kind"], one["mechanism"]) == ("audit", None)  # it attacks, and negotiates nothing


def test_a_run_whose_status_is_damaged_is_still_a_run(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "market", tmp_path / "market")
    (tmp_path / "market" / "status.json").write_text('{"st')
    (one,) = RunStore(tmp_path).listing()
    assert (one["kind"], one["state"], one["accuracy"] is None) == ("run", "incomplete", False)
    assert one["problem"] == "its status.json cannot be read."
    assert not one["resumable"]  # the command could not read it either


def test_a_stopped_run_has_the_accuracy_of_its_last_round(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "market"
    shutil.copytree(runs / "market", folder)
    (folder / "summary.json").unlink()
    first = (folder / "curator" / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (folder / "curator" / "metrics.jsonl").write_text(first)
    (one,) = RunStore(tmp_path).listing()
    score = json.loads(first)
    best = score["averaged"] or score["score"]
    assert (one["accuracy"], one["after_rounds"]) == (best["accuracy"], 1)
    (folder / "curator" / "metrics.jsonl").write_text("[]\n")
    (one,) = RunStore(tmp_path).listing()
    assert (one["accuracy"], one["after_rounds"]) == (None, None)


def test_a_season_and_each_of_its_jobs(get: Get, runs: Path) -> None:
    jobs = get("runs/season/study")["jobs"]
    written = json.loads((runs / "season" / "season.json").read_text())
    assert [one["job"] for one in jobs] == ["spring", "fall"]
    for job, own in zip(jobs, written, strict=True):
        assert job == own | {"run": job["run"]}
        assert get(f"runs/{job['run']}")["paid"] == job["paid"]
    owner = get(f"runs/{jobs[1]['run']}/owner", name="0")
    assert owner["account"]["accounts"][0]["jobs"] == 2  # the wallet, after both
    assert owner["terms"]["Agreed"]["owner"] == "0"  # of the ledger that lies with the owners
    assert owner["terms"]["Agreed"]["payment"].endswith(" EUR")
    assert get(f"runs/{jobs[1]['run']}/ledger")["sound"]


def test_a_season_that_was_moved_and_stopped_goes_on_as_a_whole(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "season", tmp_path / "season")
    for folder in (tmp_path / "season", tmp_path / "season/jobs/02"):
        status = json.loads((folder / "status.json").read_text())
        (folder / "status.json").write_text(json.dumps(status | {"state": "incomplete"}))
    client, job = Client(web_app(RunStore(tmp_path))), "/api/runs/season%20job%2002"
    refused = client.post(f"{job}/resume")
    assert (refused.status_code, refused.json()["problem"]) == (
        409, "This is a job of a season: resume the season.",
    )  # fmt: skip
    said = [client.get(one).json()["resumable"] for one in ("/api/runs/season", job)]
    assert said == [True, False]
    owner = client.get(f"{job}/owner", params={"name": "0"}).json()
    assert owner["terms"]["Agreed"]["owner"] == "0"  # of the ledger that was moved, too


def test_noise_from_a_fixed_seed_is_not_private(get: Get) -> None:
    assert get("runs/market")["private"]
    assert not get("runs/season")["private"]
    assert not get("runs/season%20job%2001")["private"]


def test_the_claims_of_a_reproduction(get: Get, runs: Path) -> None:
    found = get("runs/reproduction/study")
    assert found["claims"] == json.loads((runs / "reproduction" / "claims.json").read_text())
    titles = [one["title"] for one in found["curves"]]
    assert titles[0] == "Noise saving of the owners, paper"
    assert len(titles) == 4
    assert found["curves"][0]["curves"][0]["label"] == "DyPP (WoLF-PHC)"
    assert all(len(one["mean"]) > 1 for chart in found["curves"] for one in chart["curves"])


def test_contracts_are_those_of_the_run(get: Get, runs: Path) -> None:
    with (runs / "market" / "contracts.csv").open() as file:
        said = {row["owner"]: row for row in csv.DictReader(file)}
    found = get("runs/market/contracts")
    assert (found["total"], found["states"]) == (3, ["broken", "kept"])
    for row in found["rows"]:
        own = said[row["owner"]]
        assert row["saving"] == float(own["saving"])
        assert row["payment"] == float(own["payment"])
        assert row["paid"] == float(own["paid"])
        assert row["state"] == {"true": "kept", "false": "broken"}[own["kept"]]
        if row["state"] == "kept":  # who was refused trained fewer rounds than agreed
            assert row["epsilon"] == pytest.approx(float(own["epsilon"]), rel=1e-6)


def test_contracts_can_be_sorted_filtered_and_downloaded(get: Get, client: Client) -> None:
    for column in ("saving", "payment", "epsilon", "paid", "state"):
        up = [row[column] for row in get("runs/market/contracts", sort=column)["rows"]]
        down = get("runs/market/contracts", sort=column, descending=True)["rows"]
        assert up == sorted(up)
        assert [row[column] for row in down] == up[::-1]
    assert [one["owner"] for one in get("runs/market/contracts", state="broken")["rows"]] == ["2"]
    assert get("runs/market/contracts", search="1")["found"] == 1
    assert get("runs/market/contracts", limit=1, offset=2)["rows"][0]["owner"] == "2"
    text = client.get("/api/runs/market/contracts.csv", {"state": "kept"})
    assert "attachment" in text.headers["content-disposition"]
    assert [row["owner"] for row in csv.DictReader(io.StringIO(text.text))] == ["0", "1"]


def test_names_that_a_spreadsheet_would_compute_are_shown_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "game").mkdir()
    (tmp_path / "game" / "status.json").write_text('{"state": "complete"}')
    written = "owner,saving,sigma,payment,signed\n'=1+1,0.3,0.3,2.0,true\n"
    (tmp_path / "game" / "contracts.csv").write_text(written)
    client = Client(web_app(RunStore(tmp_path)))
    (row,) = client.get("/api/runs/game/contracts").json()["rows"]
    assert (row["owner"], row["state"]) == ("=1+1", "agreed")
    text = client.get("/api/runs/game/contracts.csv").text
    assert text.splitlines()[1].startswith("'=1+1,0.3,0.3,2.0,")


def test_an_owner_in_plain_words(get: Get, runs: Path) -> None:
    found = get("runs/market/owner", name="0")
    statement = json.loads((runs / "market/owners/owner-0/statement.json").read_text())
    assert found["currency"] == "EUR"
    assert found["contract"]["paid_micro"] == statement["paid_micro"]
    assert found["trace"]["epsilon"][-1] == pytest.approx(statement["epsilon"], rel=1e-9)
    assert [one["kind"] for one in found["entries"]][:2] == ["offered", "signed"]
    with (runs / "market" / "contracts.csv").open() as file:
        row = next(csv.DictReader(file))
    added = [float(row[name]) for name in ("loss_lowered", "loss_lowered_error")]
    assert found["row"]["lowered"] == added
    assert added[1] > 0.0
    broken = get("runs/market/owner", name="2")
    assert any("The contract is broken" in line for line in broken["statement"])
    said = call_here("ledger", "statement", "market", "0", cwd=runs).stdout
    assert all(line[:60] in said for line in found["statement"])


def test_curves_have_the_exact_equilibrium(get: Get, runs: Path) -> None:
    summary = json.loads((runs / "game" / "summary.json").read_text())
    found = get("runs/game/curves")
    assert found["equilibrium"]["saving"] == summary["equilibrium"]["mean_saving"]
    assert found["equilibrium"]["payment"] == summary["equilibrium"]["mean_payment"]
    with (runs / "game" / "trace.csv").open() as file:
        trace = [*csv.DictReader(file)]
    assert found["trace"]["saving"] == [float(row["saving"]) for row in trace]


def test_no_equilibrium_is_shown_that_ignores_a_cap(runs: Path, tmp_path: Path) -> None:
    """Which noise a cap allows depends on the owners' records, which the server does not read."""
    shutil.copytree(runs / "game", tmp_path / "game")
    file = tmp_path / "game" / "scenario.toml"
    whole = file.read_text()
    assert "epsilon_cap = 0.0" in whole
    whole = re.sub('(?m)^data = ".*"', 'data = "gone"', whole)
    file.write_text(whole.replace("epsilon_cap = 0.0", "epsilon_cap = 2.0"))
    found = Client(web_app(RunStore(tmp_path))).get("/api/runs/game/curves").json()
    assert found["equilibrium"] is None
    assert found["trace"]["saving"]


def test_a_contract_is_told_without_what_is_not_there_yet(get: Get) -> None:
    terms = get("runs/market/owner", name="0")["terms"]
    assert "least sigma" not in terms["Outcome"]
    assert (terms["Agreed"]["simulated noise"], terms["Outcome"]["kept"]) == ("no", "yes")
    said = [value for facts in terms.values() for value in facts.values()]
    assert not [one for one in said if "{" in one or one == "null"]


def test_a_game_tells_how_far_it_is_while_it_is_played(runs: Path) -> None:
    lines = (runs / "game" / "events.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert [one["done"] for one in told] == [1, 2, 3, 4]
    with (runs / "game" / "trace.csv").open() as file:
        trace = [*csv.DictReader(file)]
    for name in ("iteration", "saving", "payment"):  # the last points are those of all owners
        whole = [float(row[name]) for row in trace]
        assert told[-1]["trace"][name] == pytest.approx(whole, abs=1e-6)
    assert told[0]["trace"]["saving"] != told[-1]["trace"]["saving"]  # one owner alone
    found = RunReader(RunStore(runs), "game").look()
    assert found["progress"] == {"done": 4, "total": 4, "seconds_left": None}


def test_side_by_side(get: Get, runs: Path) -> None:
    found = get("compare", run=["market", "compared"])
    assert found["differ"] == ["model", "data", "owners", "rounds", "currency"]
    assert get("compare", run=["compared"])["differ"] == []
    rows = found["rows"]
    assert [(row["owners"], row["agreed"]) for row in rows[:2]] == [(3, False), (4, True)]
    assert [row["mechanism"] for row in rows] == ["equilibrium", "uniform", "clock", "equilibrium"]
    assert [row["currency"] for row in rows] == ["EUR", "units", "units", "units"]
    assert rows[1]["surplus"] == pytest.approx(0.0, abs=1e-9)
    assert rows[0]["measured"]
    assert rows[0]["privacy_sold"] > 0
    assert rows[0]["predicted_value"] is not None
    assert rows[1]["predicted_value"] == pytest.approx(0.0, abs=1e-9)
    assert rows[1]["trained_value"] is None  # of the game only


def test_so_many_runs_are_compared(client: Client) -> None:
    answer = client.get("/api/compare", params={"run": ["game"] * 21})
    assert answer.status_code == 422
    assert answer.json()["problem"] == "number of runs is 21: choose at most 20."


def test_a_trained_comparison_has_a_row_for_each_budget(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "compared", tmp_path / "trained")
    mean = {"mechanism": "clock", "accuracy": 94.5, "paid": 88.0, "owners_surplus": 3.0,
            "predicted_value": 18.0, "trained_value": 20.0, "sellers": 6.5, "seeds": 2}  # fmt: skip
    means = [{**mean, "budget": 100.0}, {**mean, "budget": None}]
    document = {"owners": 4, "mechanisms": ["clock"], "means": means}
    (tmp_path / "trained" / "comparison.json").write_text(json.dumps(document))
    client = Client(web_app(RunStore(tmp_path)))
    rows = client.get("/api/compare", params={"run": "trained"}).json()["rows"]
    assert [row["name"] for row in rows] == ["clock auction, at most 100", "clock auction"]
    assert {(row["accuracy"], row["paid"], row["measured"]) for row in rows} == {(94.5, 88.0, True)}
    assert {(row["predicted_value"], row["trained_value"]) for row in rows} == {(18.0, 20.0)}
    assert {(row["seeds"], row["draws"]) for row in rows} == {(2, None)}


def test_a_ledger_is_verified_and_a_changed_one_is_found(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "market", tmp_path / "market")
    client = Client(web_app(RunStore(tmp_path)))
    found = client.get("/api/runs/market/ledger").json()
    assert found["sound"]
    assert found["head"] == found["noted_head"]
    change = "UPDATE noisemarket_entries SET body = '{}' WHERE seq = 3"
    drop_guards(ledger := str(tmp_path / "market" / "ledger.sqlite"))
    execute(ledger, change)
    found = client.get("/api/runs/market/ledger").json()  # not what it found before
    assert (found["sound"], found["entry"]) == (False, 3)


def test_the_course_of_a_finished_run(runs: Path) -> None:
    summary = json.loads((runs / "market" / "summary.json").read_text())
    found = RunReader(RunStore(runs), "market").look()
    assert found["state"] == "complete"
    (market,) = found["accuracy"]  # without baselines
    assert market["mean"] == pytest.approx(summary["accuracy_per_round"], abs=1e-3)
    assert found["paid"] == summary["total_paid"]
    assert (found["contracts_paid"], found["contracts_broken"]) == (2, 1)
    assert any("Owner 2" in note for note in found["notes"])


def test_a_run_that_died_is_incomplete(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "market", tmp_path / "market")
    status = json.loads((tmp_path / "market/status.json").read_text())
    status |= {"state": "running", "process": status["process"] | {"began": 1.0}}
    (tmp_path / "market/status.json").write_text(json.dumps(status))
    found = RunStore(tmp_path).status("market")
    assert found["state"] == "incomplete"
    assert "ended from outside" in found["problem"]
