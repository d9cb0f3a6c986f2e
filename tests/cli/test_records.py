"""What others read of a market: exports, and the signed record of a deployment."""

from __future__ import annotations

import copy
import csv
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Done, call_here
from tests.ledger.edits import says
from tests.ledger.tampering import read, rewrite, write
from tests.market.common import here, words, write_images

from noisemarket.ledger.keys import KEY_FILE, KeyPair
from noisemarket.ledger.queries import account, documents, jobs
from noisemarket.ledger.store import reading
from noisemarket.market import job
from noisemarket.market.deployment import deployment, sign
from noisemarket.market.outcome import Outcome
from noisemarket.privacy.zcdp import gaussian_epsilon
from noisemarket.show.export import FinishedRun, to_mlflow, to_tensorboard

pytestmark = pytest.mark.training

ROUNDS = 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs with the same three owners, on one ledger: runs/first and runs/second."""
    folder = tmp_path_factory.mktemp("records")
    images = write_images(tmp_path_factory.mktemp("images"))
    given = words(images, model="features", noise="secure", rounds=ROUNDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "run_market", here)
        for name in ("first", "second"):
            more = ("--owners-folder", "consortium", "--out", name)
            done = call_here(*given, *more, cwd=folder)
            assert done.returncode == 0, done.stderr
    return folder


def asked(runs: Path, *arguments: str) -> Done:
    return call_here(*arguments, cwd=runs)


def test_csv_has_every_round_parameter_and_result(runs: Path) -> None:
    done = asked(runs, "export", "first", "--to", "csv")
    assert done.returncode == 0, done.stderr
    outcome = Outcome.load(runs / "first")

    def read(name: str) -> list[dict[str, str]]:
        text = (runs / "first/export/csv" / name).read_text()
        return [*csv.DictReader(text.splitlines())]

    rounds = read("rounds.csv")
    assert [float(row["score.accuracy"]) for row in rounds] == [
        result.score.accuracy for result in outcome.results
    ]
    assert [row["delivered"] for row in rounds] == ["3"] * ROUNDS
    parameters = {row["name"]: row["value"] for row in read("parameters.csv")}
    assert (parameters["training.rounds"], parameters["mechanism"]) == ("2", "equilibrium")
    results = {row["name"]: float(row["value"]) for row in read("results.csv")}
    assert results["total_paid_micro"] == sum(outcome.payments.values())


def test_tensorboard_reads_what_was_written_for_it(runs: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = asked(runs, "export", "first", "--to", "tensorboard", "--out", "logs")
    assert done.returncode == 0, done.stderr
    read = EventAccumulator(str(runs / "logs")).Reload()
    outcome = Outcome.load(runs / "first")
    assert [(one.step, one.value) for one in read.Scalars("score.accuracy")] == [
        (result.number, pytest.approx(result.score.accuracy)) for result in outcome.results
    ]
    assert "market" in read.Tags()["images"]
    assert not [*runs.glob(".export-*")]
    again = asked(runs, "export", "first", "--to", "tensorboard", "--out", "logs")
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)


def test_an_export_to_tensorboard_that_fails_leaves_nothing(runs: Path) -> None:
    run = FinishedRun.read(runs / "first")
    broken = replace(run, files=[runs / "nowhere.png"])
    with pytest.raises(FileNotFoundError):
        to_tensorboard(broken, runs / "later/logs")
    assert not [*(runs / "later").iterdir()]
    to_tensorboard(run, runs / "later/logs")
    assert [*(runs / "later").iterdir()] == [runs / "later/logs"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_mlflow_reads_what_was_written_for_it(runs: Path) -> None:
    from mlflow.tracking import MlflowClient

    store = f"sqlite:///{runs / 'mlflow.db'}"
    done = asked(runs, "export", "first", "--to", "mlflow", "--out", store)
    assert done.returncode == 0, done.stderr
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("noisemarket")
    (run,) = client.search_runs([experiment.experiment_id])
    outcome = Outcome.load(runs / "first")
    assert run.info.status == "FINISHED"
    assert run.data.params["training.rounds"] == str(ROUNDS)
    assert run.data.metrics["total_paid"] == pytest.approx(sum(outcome.payments.values()) / 1e6)
    history = client.get_metric_history(run.info.run_id, "score.accuracy")
    assert [(one.step, one.value) for one in history] == [
        (result.number, result.score.accuracy) for result in outcome.results
    ]
    names = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert {"market.png", "summary.json", "scenario.toml", "outcome.json"} <= names
    again = asked(runs, "export", "first", "--to", "mlflow", "--out", store)
    assert (again.returncode, "is in MLflow already" in again.stderr) == (2, True)
    other = FinishedRun.read(runs / "second")
    with pytest.raises(FileNotFoundError):
        to_mlflow(replace(other, files=[runs / "nowhere.png"]), store)
    later = asked(runs, "export", "second", "--to", "mlflow", "--out", store)
    assert later.returncode == 0, later.stderr
    found = client.search_runs([experiment.experiment_id])
    assert [one.info.status for one in found] == ["FINISHED", "FAILED", "FINISHED"]


@pytest.mark.parametrize(("to", "module"), [("mlflow", "mlflow"), ("tensorboard", "tensorboardX")])
def test_a_missing_extra_is_named(
    runs: Path, to: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [module, *(one for one in sys.modules if one.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    done = asked(runs, "export", "first", "--to", to, "--out", "nowhere")
    assert done.returncode == 2
    assert f"pip install 'noisemarket[{to}]'" in done.stderr
    assert not (runs / "nowhere").exists()


def test_what_cannot_be_exported_or_recorded(runs: Path) -> None:
    for arguments, told in (
        (("export", "first", "--to", "paper"), "--to is paper: choose mlflow, tensorboard or csv."),
        (("export", ".", "--to", "csv"), "the job is not settled."),
        (("ledger", "record", "."), "RUN . is not the run folder of a market."),
        (("ledger", "record", "first", "--owner", "nobody"), "has no contract in this job."),
        (("ledger", "verify", "first", "--record", "first/summary.json"), "is not a record of a"),
    ):
        done = asked(runs, *arguments)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr


@pytest.fixture(scope="module")
def record(runs: Path) -> dict[str, Any]:
    done = asked(runs, "ledger", "record", "second", "--out", "record.json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads((runs / "record.json").read_text()))


def test_every_number_of_a_record_is_what_the_entries_say(
    runs: Path, record: dict[str, Any]
) -> None:
    with reading(str(runs / "second")) as ledger:
        hashes = {entry.seq: entry for entry in ledger.entries()}
        first, second = (one.job for one in jobs(ledger))
        contracts = {(one.job, one.owner): account(ledger, one.id) for one in documents(ledger)}
    assert record["job"] == second
    for row in record["owners"]:
        both = [contracts[name, row["owner"]] for name in (first, second)]
        rho = [math.fsum(one.rho for one in each.rounds) for each in both]
        assert rho[1] > 0.0
        delta = row["privacy_parameters"]["delta"]
        assert row["privacy_parameters"]["rho"] == rho[1]
        assert row["privacy_parameters"]["epsilon"] == gaussian_epsilon(rho[1], delta)
        (total,) = row["over_all_jobs"]
        assert total["rho"] == pytest.approx(sum(rho), rel=1e-12)
        assert [one["contract"] for one in total["contracts"]] == [one.contract.id for one in both]
        assert row["mechanism"]["sigma"] == both[1].contract.sigma
        assert (row["rounds_delivered"], len(row["entries"]["rounds"])) == (ROUNDS, ROUNDS)
        rounds, *named = (row["entries"][kind] for kind in ("rounds", "offered", "signed", "paid"))
        for place in [*rounds, *named]:
            number, _, digest = place.partition(":")
            assert hashes[int(number)].hash == digest
            assert hashes[int(number)].contract == row["contract"]
    loss = record["deployment"]["privacy_loss"]
    most = max(row["privacy_parameters"]["rho"] for row in record["owners"])
    assert (loss["privacy_parameters"]["rho"], loss["guaranteed"]) == (most, True)


def test_a_record_is_verified_of_a_job_and_of_an_owner(runs: Path, record: dict[str, Any]) -> None:
    assert (
        asked(runs, "ledger", "record", "first", "--owner", "1", "--out", "one.json").stderr == ""
    )
    one = json.loads((runs / "one.json").read_text())
    assert [row["owner"] for row in one["owners"]] == ["1"]
    for run, name in (("second", "record.json"), ("first", "one.json"), ("second", "one.json")):
        done = asked(runs, "ledger", "verify", run, "--record", name)
        assert (done.returncode, "holds" in done.stdout) == (0, True), done.stderr


def test_a_record_is_signed_with_the_key_of_a_curator_of_many_jobs(runs: Path) -> None:
    kept, own = runs / "first/curator", runs / "own"
    own.mkdir(mode=0o700)
    (kept / KEY_FILE).rename(own / KEY_FILE)
    try:
        done = asked(runs, "ledger", "record", "first")
        assert (done.returncode, "holds no key: name the" in done.stderr) == (2, True), done.stderr
        done = asked(runs, "ledger", "record", "first", "--curator-folder", "own")
        assert (done.returncode, json.loads(done.stdout)["curator_key"]) == (
            0, KeyPair.load(own).public_hex,
        )  # fmt: skip
    finally:
        (own / KEY_FILE).rename(kept / KEY_FILE)


def test_nothing_is_signed_of_a_ledger_that_was_changed(runs: Path) -> None:
    place = str(runs / "consortium/ledger.sqlite")
    kept = read(place)
    try:
        rewrite(place, says("delivered", rho=0.0))
        done = asked(runs, "ledger", "record", "first")
        assert (done.returncode, done.stdout, " entry " in done.stderr) == (1, "", True)
    finally:
        write(place, kept)


def test_an_earlier_record_holds_when_the_ledger_has_grown(runs: Path) -> None:
    """The first job's record, as it was signed before the second job began."""
    with reading(str(runs / "first")) as ledger:
        first = next(iter(jobs(ledger))).job
        (opened,) = (one.seq for one in ledger.entries(kinds=["opened"]) if one.job != first)
        (before,) = ledger.entries(after=opened - 2, until=opened - 1)
        head = type(ledger.head())(before.seq, before.hash)
        early = deployment(ledger, first, head=head)
    early = sign(early, KeyPair.load(runs / "first/curator"))
    assert [len(row["over_all_jobs"][0]["contracts"]) for row in early["owners"]] == [1, 1, 1]
    (runs / "early.json").write_text(json.dumps(early))
    assert asked(runs, "ledger", "verify", "first", "--record", "early.json").returncode == 0


def test_any_changed_field_is_found(runs: Path, record: dict[str, Any]) -> None:
    def verified(changed: dict[str, Any]) -> str:
        (runs / "changed.json").write_text(json.dumps(changed))
        done = asked(runs, "ledger", "verify", "second", "--record", "changed.json")
        assert done.returncode in (1, 2)
        return done.stderr

    changes: list[tuple[str, Any]] = [
        ("owners.0.privacy_parameters.epsilon", 0.001),
        ("owners.1.mechanism.sigma", 9),
        ("owners.2.over_all_jobs.0.rho", 0),
        ("owners.0.guaranteed", 1),
        ("deployment.privacy_loss.privacy_parameters.rho", 1e-9),
        ("deployment.accounting.composition", "none"),
        ("curator_key", "0" * 64),
    ]
    for place, value in changes:
        changed = copy.deepcopy(record)
        *path, last = place.split(".")
        at: Any = changed
        for step in path:
            at = at[int(step)] if isinstance(at, list) else at[step]
        at[last] = value
        assert f" for {place}, and the record says " in verified(changed)
    assert "owners" in verified({**record, "owners": record["owners"][1:]})
    for more in (1, None):
        said = f"has nothing for more, and the record says {more}"
        assert said in verified({**record, "more": more})
    seal = record["signature"]
    assert "is not signed by its curator" in verified({**record, "signature": seal[::-1]})
    assert "holds no entry 1" in verified({**record, "ledger_head": "1:" + "0" * 64})
