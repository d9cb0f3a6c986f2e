"""The strategy of contracts: what comes is checked, averaged, recorded and paid, or not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from tests.flower.conftest import Node, ProcessGrid

from noisemarket.errors import BadInput, LedgerConflict, NoisemarketError
from noisemarket.flower.client_mod import contract_mod, parameters
from noisemarket.flower.strategy import ContractedFedAvg
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.keys import KeyPair
from noisemarket.ledger.queries import account, contracts
from noisemarket.ledger.store import Ledger, open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.offers import draft_clipped, record_contracts
from noisemarket.owner.agent import OwnerAgent
from noisemarket.owner.folder import Declined, OwnerFolder
from noisemarket.owner.terms import Assignment, Deal
from noisemarket.privacy.journal import read_journal

pytestmark = pytest.mark.process

JOB, CLIP, SIGMA, ROUNDS, PRICE = "job-1", 2.0, 0.5, 3, 1_000_000
NAMES = ["anna", "bob", "carla"]
Step = Callable[[dict[str, np.ndarray], int], Any]


def model(value: float = 0.0, size: int = 400) -> ArrayRecord:
    floats = {"first": np.full((size, 2), value, np.float32), "bias": np.full(size, value)}
    return ArrayRecord({n: Array(v) for n, v in floats.items()} | {"steps": Array(np.array([7]))})


SIZE = parameters(model())


def app_of(step: Step | None = None, name: str = "arrays") -> ClientApp:
    """An owner that moves every weight; with ``step``, one that has no mod and sends that. The
    record with the model has this name."""
    app = ClientApp()

    @app.train(mods=[contract_mod(name)] if step is None else [])
    def train(message: Message, context: Context) -> Message:
        start = {key: array.numpy() for key, array in message.content[name].items()}
        number = int(message.content["config"]["server-round"])
        if step is None:
            moved: Any = {n: v + v.dtype.type(1) for n, v in start.items()}
        else:
            moved = step(start, number)
        if isinstance(moved, RecordDict):
            return Message(moved, reply_to=message)
        arrays = ArrayRecord({n: Array(v) for n, v in moved.items()})
        weight = MetricRecord({"num-examples": 1 if step is None else 10**9})
        return Message(RecordDict({name: arrays, "metrics": weight}), reply_to=message)

    return app


def contract_of(owner: OwnerFolder, curator: KeyPair, **more: Any) -> Contract:
    deal = Deal(owner.name, 0.1, more.pop("sigma", SIGMA), PRICE)
    key = KeyPair.obtain(owner.path).public_hex
    settings = {"clip": CLIP, "parameters": SIZE, "rounds": ROUNDS, "simulated": True} | more
    return draft_clipped(JOB, deal, key, curator.public_hex, **settings)


def prepare(path: Path, **more: Any) -> ProcessGrid:
    """Owners that are honest, under contracts on the ledger, and their nodes."""
    curator = KeyPair.obtain(path / "curator")
    accepted, nodes = [], {}
    for place, name in enumerate(NAMES):
        owner = OwnerFolder(name, path / name)
        contract = contract_of(owner, curator, **more)
        work = Assignment(place, seed=5)
        signature = OwnerAgent(owner).accept_without_game(contract, SIZE, math.inf, work)
        accepted.append((contract, signature))
        config = {"owner": name, "owner-folder": str(owner.path)}
        nodes[100 + place] = Node(app_of(), config, name)
    with open_ledger(path / "ledger.sqlite", curator=curator) as ledger:
        for _ in range(2):  # once is enough
            record_contracts(ledger, curator, len(NAMES) * PRICE, accepted)
    return ProcessGrid(nodes)


def opened(path: Path) -> Ledger:
    """The ledger, as the curator writes to it."""
    curator = KeyPair.load(path / "curator")
    return open_ledger(path / "ledger.sqlite", create=False, curator=curator)


def carry_out(
    path: Path, grid: ProcessGrid, evaluate: Any = None, **more: Any
) -> tuple[np.ndarray, Any]:
    """Run the job; gives the bias of the model and all that the ledger says."""
    with opened(path) as ledger:
        strategy = ContractedFedAvg(ledger, JOB, path / "job", wait=0.1, **more)
        result = strategy.start(grid, model(), timeout=1, evaluate_fn=evaluate)
        assert strategy.settlement is not None
        verify(ledger)
        assert result.arrays["steps"].numpy() == [7]
        return result.arrays["bias"].numpy(), standing(ledger)


def standing(ledger: Ledger) -> dict[str, tuple[str, int, list[tuple[int, str, str | None]]]]:
    out = {}
    for one in contracts(ledger):
        rounds = account(ledger, one.contract.id).rounds
        told = [(entry.round, entry.outcome, entry.reason) for entry in rounds]
        out[one.contract.owner] = (one.state, one.paid or 0, told)
    return out


GOOD = ("paid", PRICE, [(number, "delivered", None) for number in (1, 2, 3)])


def test_honest_owners_move_the_model_and_are_paid(tmp_path: Path) -> None:
    grid = prepare(tmp_path, sigma=0.0)
    bias, told = carry_out(tmp_path, grid)
    assert told == dict.fromkeys(NAMES, GOOD)
    assert bias == pytest.approx(np.full(400, ROUNDS * CLIP / math.sqrt(SIZE)))  # by the clip
    for name in NAMES:
        journal = read_journal(OwnerFolder(name, tmp_path / name).journal(JOB))
        assert [charge.round for charge in journal.charges] == [1, 2, 3]


def test_the_record_with_the_model_may_have_another_name(tmp_path: Path) -> None:
    grid = prepare(tmp_path)
    for node in grid.nodes.values():
        node.app = app_of(name="model")
    _, told = carry_out(tmp_path, grid, arrays="model")
    assert told == dict.fromkeys(NAMES, GOOD)
    assert all("arrays" not in one.content for one in [*grid.sent, *grid.heard])


def test_the_account_of_owner_and_ledger_is_one(tmp_path: Path) -> None:
    carry_out(tmp_path, prepare(tmp_path))
    statement = read_journal(OwnerFolder("bob", tmp_path / "bob").journal(JOB)).statement("bob")
    with open_ledger(tmp_path / "ledger.sqlite", create=False) as ledger:
        contract = next(one.contract for one in contracts(ledger) if one.contract.owner == "bob")
        spent = sum(entry.rho for entry in account(ledger, contract.id).rounds)
    assert statement.rho_total == pytest.approx(spent)
    assert statement.rho_total == pytest.approx(contract.rho_cap)
    assert statement.epsilon == pytest.approx(contract.epsilon)
    assert statement.protects == contract.protects


def quiet(start: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    return start


def loud(start: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    return {
        n: v if v.dtype.kind != "f" else (v + rng.normal(0, 1.5 * SIGMA, v.shape)).astype(v.dtype)
        for n, v in start.items()
    }


@pytest.mark.parametrize(
    ("cheat", "reason"), [(quiet, "too little noise"), (loud, "too much noise")]
)
def test_another_noise_than_contracted_is_found_and_not_paid(
    tmp_path: Path, cheat: Step, reason: str
) -> None:
    grid = prepare(tmp_path)
    grid.nodes[101].app = app_of(cheat)
    bias, told = carry_out(tmp_path, grid)
    away = [(number, "missed", "took no part") for number in (2, 3)]
    assert told.pop("bob") == ("broken", 0, [(1, "refused", reason), *away])
    assert told == {"anna": GOOD, "carla": GOOD}
    asked = [message.metadata.dst_node_id for message in grid.sent]
    assert asked.count(101) == 1
    again = prepare(tmp_path / "again")
    del again.nodes[101]  # without it, all is the same: it has moved nothing
    assert np.array_equal(bias, carry_out(tmp_path / "again", again)[0])


def broken(start: dict[str, np.ndarray], number: int) -> Any:
    """Not a number, another shape, nothing at all."""
    if number == 1:
        return {n: v * np.nan if v.dtype.kind == "f" else v for n, v in start.items()}
    if number == 2:
        return {n: v[:3] for n, v in start.items()}
    rubbish = Array("float32", (45,), "numpy.ndarray", b"\x93NUMPY rubbish")
    return RecordDict({"arrays": ArrayRecord({"first": rubbish})})


def failing(start: dict[str, np.ndarray], number: int) -> Any:
    raise RuntimeError


def test_rubbish_failure_and_absence_move_nothing_and_the_job_goes_on(tmp_path: Path) -> None:
    grid = prepare(tmp_path)
    grid.nodes[100].app, grid.nodes[101].app = app_of(broken), app_of(failing)
    bias, told = carry_out(tmp_path, grid)
    assert told["anna"] == (
        "broken", 0,
        [(1, "refused", "not finite"), (2, "refused", "wrong shape"),
         (3, "missed", "no upload came")],
    )  # fmt: skip
    assert told["bob"] == ("paid", 0, [(n, "missed", "no upload came") for n in (1, 2, 3)])
    assert told["carla"] == GOOD
    assert np.isfinite(bias).all()
    assert bias.any()


def test_strangers_are_not_asked_and_nobody_counts_for_more_than_the_curator_says(
    tmp_path: Path,
) -> None:
    grid = prepare(tmp_path, sigma=0.0)
    grid.nodes[900] = Node(app_of(loud), {}, "mallory")
    grid.nodes[901] = Node(app_of(loud), {}, "")

    def still(start: dict[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
        return start  # and says that it has a thousand million records

    grid.nodes[101].app = app_of(still)
    step = CLIP / math.sqrt(SIZE)
    assert carry_out(tmp_path, grid)[0] == pytest.approx(np.full(400, ROUNDS * step * 2 / 3))
    assert {message.metadata.dst_node_id for message in grid.sent} == {100, 101, 102}
    by_shares = tmp_path / "shares"
    grid = prepare(by_shares, sigma=0.0)
    grid.nodes[101].app = app_of(still)
    shares = {"anna": 1.0, "bob": 3.0, "carla": 0.0}
    bias, _ = carry_out(by_shares, grid, shares=shares, rate=2.0)
    assert bias == pytest.approx(np.full(400, 2 * ROUNDS * step / 4))


class Killed(Exception):
    pass


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_job_that_was_cut_off_goes_on_where_it_was(tmp_path: Path, after: int) -> None:
    """Cut off between rounds: before the first, after the first, before it is settled."""
    whole = carry_out(tmp_path / "whole", prepare(tmp_path / "whole"))
    place = tmp_path / "parts"
    grid = prepare(place)

    def kill(number: int, arrays: ArrayRecord) -> None:
        if number == after:
            raise Killed

    with pytest.raises(Killed):
        carry_out(place, grid, kill)
    assert len(grid.sent) == after * len(NAMES)
    bias, told = carry_out(place, grid)
    assert told == whole[1]
    assert np.array_equal(bias, whole[0])
    assert len(grid.sent) == ROUNDS * len(NAMES)  # no round was trained twice
    assert np.array_equal(carry_out(place, grid)[0], bias)  # nor is anything paid twice
    assert len(grid.sent) == ROUNDS * len(NAMES)


def test_a_round_that_was_cut_off_in_the_middle_costs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = prepare(tmp_path)

    def killed(self: Ledger, *given: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("noisemarket.flower.strategy.Checkpoint.save", killed)
        with pytest.raises(Killed):
            carry_out(tmp_path, grid)
    with monkeypatch.context() as patch:
        patch.setattr("noisemarket.flower.strategy.ContractedFedAvg._record", killed)
        with pytest.raises(Killed):
            carry_out(tmp_path, grid)
    assert carry_out(tmp_path, grid)[1] == dict.fromkeys(NAMES, GOOD)
    for name in NAMES:
        journal = read_journal(OwnerFolder(name, tmp_path / name).journal(JOB))
        assert [charge.round for charge in journal.charges] == [1, 2, 3]


def test_without_owners_it_stops_and_can_go_on(tmp_path: Path) -> None:
    grid = prepare(tmp_path)
    with pytest.raises(NoisemarketError, match="No owner is here for round 1"):
        carry_out(tmp_path, ProcessGrid({}))
    assert carry_out(tmp_path, grid)[1] == dict.fromkeys(NAMES, GOOD)


def test_what_it_cannot_do_it_says(tmp_path: Path) -> None:
    grid = prepare(tmp_path)
    with opened(tmp_path) as ledger:
        with pytest.raises(BadInput, match="no signed contract"):
            ContractedFedAvg(ledger, "other", tmp_path / "job")
        with pytest.raises(BadInput, match="every owner's share"):
            ContractedFedAvg(ledger, JOB, tmp_path / "job", shares={"anna": 1.0})
        strategy = ContractedFedAvg(ledger, JOB, tmp_path / "job", wait=0.1)
        with pytest.raises(BadInput, match="for 3 rounds"):
            strategy.start(grid, model(), num_rounds=2)
        with pytest.raises(NoisemarketError, match="call its start"):
            strategy.aggregate_train(1, [])
        strategy.start(grid, model(), num_rounds=3, timeout=1)
        with pytest.raises(BadInput, match="not the model of this job"):
            strategy.start(grid, model(size=3))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"owner": "bob"}, "agreed to other owner"),
        ({"protection": "sharded"}, "clipped"),
        ({"clip": None}, "settings.clip is None: clipped needs it"),
        ({"rho_per_round": 1.0}, "agreed to other rho_per_round$"),
        ({"rho_cap": 1e9}, "agreed to other rho_cap"),
        ({"epsilon": 0.1}, "agreed to other epsilon$"),
        ({"whole_owner": False}, "agreed to other whole_owner$"),
        ({"offered_at": "2020-01-01T00:00:00+00:00", "expires_at": "2020-01-02T00:00:00+00:00"},
         "expired"),
    ],
)  # fmt: skip
def test_an_owner_signs_nothing_that_costs_more_than_it_says(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    owner, curator = OwnerFolder("anna", tmp_path / "anna"), KeyPair.obtain(tmp_path / "curator")
    good = contract_of(owner, curator)
    accept, work = OwnerAgent(owner).accept_without_game, Assignment()
    with pytest.raises(NoisemarketError, match=words):
        accept(replace(good, **changes), SIZE, math.inf, work)
    with pytest.raises(Declined, match="agreed to other rho_per_round"):
        accept(good, 10**9, math.inf, work)
    with pytest.raises(Declined, match="agreed to other rho_cap"):
        accept(good, SIZE, good.rho_cap / 2, work)
    assert not (tmp_path / "anna" / "jobs").exists()  # it has agreed to nothing


def test_contracts_go_on_record_with_both_signatures_only(tmp_path: Path) -> None:
    owner, curator = OwnerFolder("anna", tmp_path / "anna"), KeyPair.obtain(tmp_path / "curator")
    contract = contract_of(owner, curator)
    with open_ledger(tmp_path / "ledger.sqlite", curator=curator) as ledger:
        for accepted, words in (([], "at least one"), ([(contract, "")] * 2, "for each owner")):
            with pytest.raises(BadInput, match=words):
                record_contracts(ledger, curator, PRICE, accepted)
        with pytest.raises(LedgerConflict, match="signature"):
            record_contracts(ledger, curator, PRICE, [(contract, "0" * 128)])


def test_the_page_shows_how_a_contract_is_made(tmp_path: Path) -> None:
    page = (
        Path(__file__).resolve().parents[2] / "docs" / "how-to" / "flower-own-app.md"
    ).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if "draft_clipped(" in block]
    (tmp_path / "job").mkdir()
    exec(code.replace("/data", str(tmp_path)), {})
    with open_ledger(tmp_path / "job" / "ledger.sqlite", create=False) as ledger:
        (one,) = contracts(ledger)
        assert (one.contract.owner, one.state) == ("north", "signed")
        assert ContractedFedAvg(ledger, "job-1", tmp_path / "job").rounds == 8
    terms = OwnerFolder("north", tmp_path / "north").terms("job-1")
    assert (terms.sigma, terms.protection, terms.settings) == (0.4, "clipped", {"clip": 1.0})


def test_messages_hold_what_the_owner_must_know_and_the_apps_own_settings(tmp_path: Path) -> None:
    grid = prepare(tmp_path)
    with opened(tmp_path) as ledger:
        strategy = ContractedFedAvg(ledger, JOB, tmp_path / "job", wait=0.1)
        strategy.start(grid, model(), timeout=1, train_config=ConfigRecord({"rate": 0.1}))
    told = dict(grid.sent[-1].content["config"])
    assert told == {"rate": 0.1, "server-round": 3, "job": JOB, "sigma": SIGMA}
