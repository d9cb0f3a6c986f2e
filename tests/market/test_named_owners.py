"""A market over owners' own records: nobody's record moves, and the contract says what one is."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import call, call_here

import noisemarket as nm
from noisemarket.errors import BadInput
from noisemarket.federated.columns import Description
from noisemarket.federated.data_files import load_data
from noisemarket.federated.models import maker_of
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.money import MICRO, format_micro
from noisemarket.ledger.store import reading
from noisemarket.market.orders import prepare
from noisemarket.market.training import SerialEngine
from noisemarket.owner.folder import Declined, OwnerFolder
from noisemarket.owner.round import OwnRound, _described
from noisemarket.study.compare import Plan, decisions

pytest.importorskip("pyarrow")  # the extra "tables"

HOSPITALS = Path(__file__).parents[2] / "examples" / "hospitals"
SIZES = [64, 57, 52, 47, 42, 38, 34, 30, 27, 24, 21, 20]
KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
FIELDS: dict[str, Any] = {
    "job": "j", "owner": "ashford", "owner_key": KEY, "curator_key": KEY, "saving": 0.0,
    "sigma": 0.6, "payment": 0, "protection": "per_record", "rounds": 1, "rho_per_round": 0.1,
    "rho_cap": 0.1, "epsilon": 1.0, "delta": 1e-5, "neighbours": "replace_one",
    "protects": "one record", "offered_at": "2030-01-01T00:00:00+00:00",
    "expires_at": "2030-01-02T00:00:00+00:00", "nonce": "n",
}  # fmt: skip


def scenario(**settings: object) -> nm.Scenario:
    given = {"data": str(HOSPITALS), "protection": "per_record", "rounds": 2} | settings
    return nm.Scenario.from_preset("market", **given)


def owners_file(folder: Path, names: list[str]) -> str:
    path = folder / "owners.csv"
    rows = [f"{name},{number + 1}.0,1.0,0.2\n" for number, name in enumerate(names)]
    path.write_text("owner,privacy_cost,beta,markup\n" + "".join(rows))
    return str(path)


def test_owners_of_the_data_are_those_of_the_game() -> None:
    made = scenario()
    population = made.environment().population
    assert made.population.owners == 12
    assert list(population.names)[:2] == ["ashford", "bexley"]
    assert population.data_size.tolist() == SIZES
    assert len(set(population.privacy_cost.tolist())) == 12


def test_every_owner_trains_on_its_own_records_whatever_the_seed(tmp_path: Path) -> None:
    names = list(load_data(str(HOSPITALS)).owners)[::-1]
    for seed in (1, 2):
        made = scenario(seed=seed, file=owners_file(tmp_path, names))
        job = prepare(made).order.job
        assert job.partition.sizes.tolist() == SIZES[::-1]
        data = job.data
        for name, own in zip(names, job.partition.indices, strict=True):
            assert data.holders is not None
            assert {data.owners[at] for at in data.holders[own]} == {name}


def test_rows_of_the_owners_file_belong_to_owners_by_name(tmp_path: Path) -> None:
    names = list(load_data(str(HOSPITALS)).owners)[::-1]
    population = scenario(file=owners_file(tmp_path, names)).environment().population
    cost = dict(zip(population.names, population.privacy_cost.tolist(), strict=True))
    assert cost["larkhill"] == 1.0
    assert cost["ashford"] == 12.0
    made = scenario(file=owners_file(tmp_path, [*names[1:], "elsewhere"]))
    with pytest.raises(BadInput, match=r"lacks larkhill, .* it has elsewhere "):
        made.environment()


def test_number_of_owners_is_the_data_s() -> None:
    with pytest.raises(BadInput, match="has the records of 12 owners"):
        scenario(owners=5).environment()


def test_data_given_to_train_brings_its_owners() -> None:
    plain = nm.Scenario.from_preset("market", protection="per_record")
    data = load_data(str(HOSPITALS))
    with pytest.raises(BadInput, match="has the records of 12 owners"):
        plain.environment(records=data.records_of)


@pytest.mark.training
@pytest.mark.process
def test_contract_has_the_digest_and_the_ledger_the_text(tmp_path: Path) -> None:
    settings = f"data={HOSPITALS}", "protection=per_record", "rounds=2", "noise=simulated"
    words = [word for one in settings for word in ("--set", one)]
    done = call("run", *words, "--no-baselines", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    description = Description.read(HOSPITALS / "columns.toml")
    with reading(str(tmp_path / "run")) as ledger:
        entries = list(ledger.entries())
    (opened,) = (json.loads(one.body) for one in entries if one.kind == "opened")
    assert opened["about"]["description"] == description.text
    offered = [json.loads(one.body)["contract"] for one in entries if one.kind == "offered"]
    assert {one["description"] for one in offered} == {description.sha256}
    assert {one["owner"] for one in offered} == set(load_data(str(HOSPITALS)).owners)


def test_contract_without_a_description_has_no_such_field() -> None:
    plain, other = Contract(**FIELDS), Contract(**FIELDS, description="0" * 64)
    assert "description" not in plain.to_dict()
    assert Contract.from_bytes(plain.bytes()) == plain
    assert Contract.from_bytes(other.bytes()) == other
    assert plain.id != other.id
    with pytest.raises(BadInput, match="leave it out"):
        Contract.from_dict(plain.to_dict() | {"description": None})
    with pytest.raises(BadInput):
        Contract(**FIELDS, description="short")


def test_owner_reads_its_table_by_the_contracted_description(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    description = Description.read(HOSPITALS / "columns.toml")
    folder = OwnerFolder("ashford", tmp_path / "ashford")
    folder.keep_table(HOSPITALS / "ashford.csv")
    assert folder.record_count() == 64
    images, labels = folder.records(description)
    data = load_data(str(HOSPITALS))
    np.testing.assert_array_equal(images, data.train_inputs()[:64])
    np.testing.assert_array_equal(labels, data.train_labels[:64])
    again, _ = folder.records(description)
    np.testing.assert_array_equal(images, again)
    with pytest.raises(Declined, match="does not describe"):
        folder.records()
    bad = Description.parse(description.text.replace('"malignant"', '"bad"'))
    with pytest.raises(Declined, match="do not fit") as problem:
        folder.records(bad)
    assert "malignant" not in str(problem.value)
    assert "diagnosis in line 3 of" in caplog.text  # on the owner's own machine


def test_owner_with_its_own_table_uploads_what_the_embedded_market_does(tmp_path: Path) -> None:
    job = prepare(scenario(noise="simulated")).order.job
    start = job.first_weights()
    (upload,) = SerialEngine(job).train(1, start, [0]).values()
    folder, description = OwnerFolder("ashford", tmp_path / "ashford"), job.data.description
    assert description is not None
    folder.keep_table(HOSPITALS / "ashford.csv")
    settings = dict(job.protection.contract_settings(64))
    apart = {name: settings.pop(name) for name in ("clip", "shards") if name in settings}
    stated = FIELDS | apart | {"settings": settings, "simulated": True, "rho_cap": 1.0}
    signed = Contract(**stated, description=description.sha256)
    model = job.model.settings()
    plan = {"index": 0, "seed": job.seed, "model": model, "description": description.text}
    folder.job("j")
    mine = OwnRound(folder, signed, plan, maker_of)
    assert len(mine) == 64
    folder.wallet().reserve(signed.job, mine.own_budget, signed.expires_at, math.inf)
    assert upload is not None
    np.testing.assert_array_equal(mine.upload(1, start.astype(np.float32)), upload)


def test_owner_declines_another_description_than_the_contracted_one() -> None:
    description = Description.read(HOSPITALS / "columns.toml")
    signed = Contract(**FIELDS, description=description.sha256)
    model = {"dimension": description.dimension}
    plan = {"index": 0, "seed": 1, "model": model, "description": description.text}
    assert _described(signed, plan) == description
    other = description.text.replace("high = 29.0", "high = 30.0")
    assert other != description.text
    with pytest.raises(Declined, match="not the contracted one"):
        _described(signed, plan | {"description": other})
    with pytest.raises(Declined, match="cannot be read"):
        _described(signed, plan | {"description": "["})
    with pytest.raises(Declined, match="does not fit"):
        _described(signed, plan | {"model": {"dimension": 3}})


def test_curator_needs_no_owner_s_file_over_flower(tmp_path: Path) -> None:
    for name in ("test.csv", "columns.toml"):
        (tmp_path / name).write_bytes((HOSPITALS / name).read_bytes())
    file = tmp_path / "owners.csv"
    file.write_text("owner,data_size,beta\nashford,64,1\nbexley,57,1\n")
    made = scenario(data=str(tmp_path), file=str(file))
    order = prepare(made, secrets=False).order
    assert order.job.partition.sizes.tolist() == [64, 57]
    whole = prepare(scenario()).order
    assert order.budgets[0].rho_per_round == whole.budgets[0].rho_per_round
    with pytest.raises(BadInput, match="has no owner's records"):
        nm.train(made.model_copy(update={"population": scenario().population.model_copy(
            update={"owners": 2})}), sigma=0.6, workers=1)  # fmt: skip


def test_a_cap_is_kept_before_anything_is_signed(tmp_path: Path) -> None:
    made = scenario(mechanism="equilibrium", epsilon_cap=1.4, rounds=3, currency="EUR")
    market = prepare(made)
    rounds = made.training.rounds
    outcome = nm.run_market(market, tmp_path / "run", engine=SerialEngine).finish()
    at_cap = [row for row in outcome.owners if "privacy cap" in row.reason]
    assert at_cap
    assert any(row.saving > 0 for row in outcome.owners)
    for row in outcome.owners:
        assert row.epsilon <= 1.4 * (1 + 1e-9)
        assert row.releases == rounds or row.saving == 0
        assert row.paid_micro == row.payment_micro
    with reading(str(tmp_path / "run")) as ledger:
        (opened,) = ledger.entries(kinds=["opened"])
    about = opened.content()["about"]
    assert about["currency"] == "EUR"
    assert "owners" not in about
    said = call_here("ledger", "statement", "run", at_cap[0].owner, cwd=tmp_path).stdout
    said = " ".join(said.split())
    assert "The job's privacy cap allows noise of at least" in said
    assert "EUR; paid:" in said
    assert "Simulated" not in said
    agreed = nm.negotiate(made).contracts
    assert [one.payment for one in agreed] == [row.payment_micro / MICRO for row in outcome.owners]
    assert [one.saving for one in agreed] == pytest.approx([row.saving for row in outcome.owners])
    (compared,) = decisions(made, Plan(("equilibrium",), (None,), (made.seed,)))
    assert compared.sigma.tolist() == [row.sigma for row in outcome.owners]
    total = format_micro(sum(row.paid_micro or 0 for row in outcome.owners))
    checked = call_here("ledger", "verify", "run", cwd=tmp_path).stdout
    assert f"{total} EUR paid in all." in " ".join(checked.split())


def test_owner_whose_cap_is_below_the_unpaid_job_is_told_so(tmp_path: Path) -> None:
    made = scenario(mechanism="equilibrium", epsilon_cap=0.4, rounds=2)
    outcome = nm.run_market(prepare(made), tmp_path / "run", engine=SerialEngine).finish()
    out = [row for row in outcome.owners if row.releases < 2]
    assert out
    assert {row.reason for row in out} == {"its privacy cap does not allow all rounds, even unpaid"}
    said = call_here("ledger", "statement", "run", out[0].owner, cwd=tmp_path).stdout
    assert "nothing was sold, and rounds beyond the cap are missed." in " ".join(said.split())


@pytest.mark.compiled
@pytest.mark.parametrize("form", ["html", "text"])
def test_every_owner_gets_a_page(form: str, tmp_path: Path) -> None:
    nm.run_market(scenario(), tmp_path / "run", engine=SerialEngine).finish()
    words = ("ledger", "statement", "run", "--all", "--out", "pages", "--format", form)
    assert call_here(*words, cwd=tmp_path).returncode == 0
    pages = sorted((tmp_path / "pages").iterdir())
    assert len(pages) == 12
    text = pages[0].read_text(encoding="utf-8")
    assert "ashford" in text
    assert "Rounds: 2 of 2 delivered" in text
