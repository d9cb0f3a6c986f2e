"""``noisemarket ledger`` as it is typed."""

import csv
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.common import NOW, Job, contract, key
from tests.ledger.processes import ROOT
from tests.ledger.tampering import tamper

from noisemarket.cli import main
from noisemarket.ledger import entries
from noisemarket.ledger.entries import FIRST, Head, entry_hash
from noisemarket.ledger.money import MOST
from noisemarket.ledger.store import open_ledger
from noisemarket.market.offers import Verdict, settle
from noisemarket.privacy.zcdp import gaussian_epsilon

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["ledger", *arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def fill(place: Any) -> tuple[Job, Head]:
    job = Job.of(["north", "east [x]", "south"])
    with open_ledger(place, clock=lambda: NOW, curator=key("curator")) as ledger:
        job.begin(ledger)
        settle(ledger, job.name, job.verdicts(broken=["north"]))
        return job, ledger.head()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.process)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path)
    else:
        yield request.getfixturevalue("postgres_place")


def test_every_command_on_a_sound_ledger(run: Run, place: str, tmp_path: Path) -> None:
    job, head = fill(place)
    code, out, _ = run("ls", place)
    assert code == 0
    assert "16.666666 units paid of 1000.00" in out
    assert f"Curator's key: {key('curator').public_hex}\n" in out
    assert "east [x]" in out
    assert "2/3" in out
    code, out, _ = run("ls", place, "--json")
    listed = json.loads(out)
    assert [row["state"] for row in listed["contracts"]] == ["broken", "paid", "paid"]
    assert listed["jobs"][0]["paid_micro"] == 16_666_666
    code, out, _ = run("show", place, job.contracts[1].id[:12])
    assert code == 0
    assert job.contracts[1].id in out
    assert "east [x]" in out
    code, out, _ = run("show", place, job.contracts[2].id, "--json")
    assert json.loads(out)["terms"] == json.loads(job.contracts[2].bytes())
    code, out, _ = run("verify", place)
    assert (code, f"Head to note elsewhere: {head}" in out) == (0, True)
    assert f"Curator's key to note elsewhere: {key('curator').public_hex}\n" in out
    code, out, _ = run("verify", place, "--head", str(head), "--json")
    assert code == 0
    assert json.loads(out) == {
        "sound": True, "entries": head.count, "head": str(head), "jobs": 1, "jobs_settled": 1,
        "contracts": 3, "contracts_paid": 2, "contracts_broken": 1, "paid_micro": 16_666_666,
        "money_micro": {"units": 16_666_666}, "curator_keys": [key("curator").public_hex],
    }  # fmt: skip
    tables, chain = tmp_path / "out.csv", tmp_path / "out.json"
    assert run("export", place, "--csv", str(tables), "--json", str(chain)) == (0, "", "")
    with tables.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["owner"], row["kept"], row["paid_micro"]) for row in rows] == [
        ("north", "false", "0"), ("east [x]", "true", "10000000"), ("south", "true", "6666666"),
    ]  # fmt: skip
    exported = json.loads(chain.read_text(encoding="utf-8"))
    last = FIRST
    for entry in exported["entries"]:  # whoever has the file can check the chain
        stored = entry.pop("hash")
        assert entry["previous"] == last
        assert entry_hash(**entry) == stored
        last = stored
    assert exported["head"] == f"{len(exported['entries'])}:{last}" == str(head)
    assert not list(tmp_path.glob(".*"))


def test_a_ledger_of_another_curator(run: Run, tmp_path: Path) -> None:
    fill(tmp_path)
    noted, other = (key(name).public_hex for name in ("curator", "mallory"))
    assert run("verify", str(tmp_path), "--curator-key", noted)[0] == 0
    assert run("verify", str(tmp_path), "--curator-key", other, "--curator-key", noted)[0] == 0
    code, out, err = run("verify", str(tmp_path), "--curator-key", other)
    assert (code, out) == (1, "")
    found = f"entry 1 (opened) opens a job with another curator's key: {noted}; if you trust it"
    assert found in err
    code, out, _ = run("verify", str(tmp_path), "--curator-key", other, "--json")
    assert (code, json.loads(out)["entry"]) == (1, 1)


def test_no_budget_is_said_in_words(run: Run, tmp_path: Path) -> None:
    with open_ledger(tmp_path, clock=lambda: NOW, curator=key("curator")) as ledger:
        ledger.append(replace(Job.of(), budget=MOST).opening())
    _, out, _ = run("ls", str(tmp_path))
    assert "0.00 units paid, no budget." in out


def test_simulated_owners_are_named_in_the_list(run: Run, tmp_path: Path) -> None:
    curator = key("curator")
    with open_ledger(tmp_path, clock=lambda: NOW, curator=curator) as ledger:
        job = entries.opened("job-1", MOST, curator.public_hex, owners=entries.SIMULATED)
        ledger.append([job])
    assert "paid, no budget, simulated owners." in run("ls", str(tmp_path))[1]


@pytest.mark.parametrize("name", ["[/b]", "\\[/b]", "[red]x[/red]", "\\"])
def test_names_are_shown_as_they_are(run: Run, tmp_path: Path, name: str) -> None:
    one = contract(name, job=name)
    job = Job((one,))
    with open_ledger(tmp_path, clock=lambda: NOW, curator=key("curator")) as ledger:
        ledger.append([*job.opening(), *job.signing()])
        ledger.append([entries.refused(one, 1, f"reason {name}")])
        settle(ledger, job.name, [Verdict(one, False, 0, {"reason": name})])
    for command in (("ls",), ("show", one.id), ("statement", name)):
        code, out, err = run(command[0], str(tmp_path), *command[1:])
        assert (code, err) == (0, "")
        assert name in out, command


def test_a_run_folder_says_where_its_ledger_is(
    run: Run, tmp_path: Path, postgres_place: str
) -> None:
    job, head = fill(postgres_place)
    card, times = tmp_path / "market.json", {"opened_at": str(NOW), "expires_at": str(NOW)}
    card.write_text(json.dumps({"job": job.name, "ledger": postgres_place} | times))
    code, out, _ = run("verify", str(tmp_path), "--json")
    assert (code, json.loads(out)["head"]) == (0, str(head))
    assert len(json.loads(run("ls", str(tmp_path), "--json")[1])["contracts"]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["market.json"]
    card.write_text(json.dumps({"job": job.name, "ledger": ""} | times))
    code, _, err = run("ls", str(tmp_path))
    assert (code, "has no ledger.sqlite" in err) == (2, True)
    _, head = fill(tmp_path)
    assert json.loads(run("verify", str(tmp_path), "--json")[1])["head"] == str(head)
    for damage in ("{", "[]", "{}", "[" * 5000):
        card.write_text(damage)
        code, out, err = run("ls", str(tmp_path))
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "market.json cannot be read: name the ledger itself." in err
    assert run("ls", str(tmp_path / "ledger.sqlite"))[0] == 0


def test_a_password_is_never_shown(run: Run) -> None:
    secret = "h0rse"
    for url in (
        f"postgresql://nobody:{secret}@127.0.0.1:1/none",
        f"postgresql://nobody@127.0.0.1:1/none?password={secret}&sslpassword={secret}",
        f"mysql://nobody:{secret}@127.0.0.1:1/none",
        f"mysql://127.0.0.1/none?password={secret}",
    ):
        code, out, err = run("ls", url)
        assert code in (1, 2)
        assert secret not in out + err


def test_a_statement_adds_up(run: Run, place: str) -> None:
    fill(place)
    code, out, _ = run("statement", place, "south", "--json")
    assert code == 0
    (said,) = json.loads(out)["contracts"]
    assert said["rho_total"] == pytest.approx(0.004)
    assert said["epsilon"] == pytest.approx(gaussian_epsilon(0.004, 1e-5))
    assert said["epsilon_per_round"] == pytest.approx(gaussian_epsilon(0.002, 1e-5))
    assert (said["kept"], said["paid_micro"], said["delivered"], said["missed"]) == (
        True, 6_666_666, 2, 1,
    )  # fmt: skip
    assert [each["outcome"] for each in said["each_round"]] == ["delivered", "missed", "delivered"]
    _, out, _ = run("statement", place, "south")
    assert "Sold: 0.1 of its noise; it added sigma 0.5" in out
    assert "The contract is kept. Agreed: 10.00 units; paid: 6.666666 units." in out
    _, out, _ = run("statement", place, "north")
    assert "The contract is broken. Agreed: 10.00 units; paid: 0.00 units." in out
    assert "Evidence: p value 0.25." in out


def test_a_refused_upload_costs_privacy_and_brings_nothing(run: Run, tmp_path: Path) -> None:
    one = contract()
    job = Job((one,))
    with open_ledger(tmp_path, clock=lambda: NOW, curator=key("curator")) as ledger:
        ledger.append([*job.opening(), *job.signing()])
        ledger.append([entries.delivered(one, 1), entries.delivered(one, 2)])
        ledger.append([entries.refused(one, 3, "not finite")])
        settle(ledger, job.name, [Verdict(one, True, 2)])
    _, out, _ = run("statement", str(tmp_path), "north", "--json")
    (said,) = json.loads(out)["contracts"]
    assert said["rho_total"] == pytest.approx(0.006)
    assert (said["refused"], said["paid_micro"]) == (1, 6_666_666)
    assert said["each_round"][2]["reason"] == "not finite"


def test_a_contract_without_a_guarantee_says_so(run: Run, tmp_path: Path) -> None:
    infinite = {"rho_per_round": math.inf, "rho_cap": math.inf, "epsilon": math.inf}
    one = contract(protection="paper", simulated=True, **infinite)
    with open_ledger(tmp_path, clock=lambda: NOW, curator=key("curator")) as ledger:
        ledger.append([*Job((one,)).opening(), *Job((one,)).signing(), entries.delivered(one, 1)])
    code, out, _ = run("statement", str(tmp_path), "north", "--json")
    (said,) = json.loads(out)["contracts"]
    assert (code, said["epsilon"], said["rho_total"], said["guaranteed"]) == (0, None, None, False)
    _, out, _ = run("statement", str(tmp_path), "north")
    assert "Nothing is guaranteed" in out
    assert "NOT PRIVATE" in out
    assert "not judged yet" in out


def test_a_bad_ledger_is_told_by_its_first_bad_entry(run: Run, tmp_path: Path) -> None:
    _, head = fill(tmp_path)
    code, out, err = run("verify", str(tmp_path), "--head", "7:" + "0" * 64)
    assert (code, out) == (1, "")
    assert "entry 7" in err
    file = str(tmp_path / "ledger.sqlite")
    tamper(file, "UPDATE noisemarket_entries SET body = '[]' WHERE seq = 6")
    code, out, err = run("verify", str(tmp_path))
    assert (code, out) == (1, "")
    assert err == (
        "noisemarket: verification failed: entry 6 (signed, contract "
        f"{err.split('contract ')[1][:12]}) was changed: its hash is another.\n"
    )
    code, out, err = run("verify", str(tmp_path), "--head", str(head), "--json")
    assert (code, err) == (1, "")
    assert (json.loads(out)["sound"], json.loads(out)["entry"]) == (False, 6)


@pytest.mark.parametrize(
    "damage",
    [
        *("body = '[]'", "body = 'x'", "body = '{}'", "kind = 'odd'", "contract = NULL"),
        *(f"body = '{'[' * deep}{']' * deep}'" for deep in (960, 5000)),
        f"body = replace(body, '0.25', '{'[' * 970}{']' * 970}')",
        f"body = replace(body, '0.25', '{'[' * 5000}{']' * 5000}')",
        "body = replace(body, '\"no upload\"', '[1]')",
    ],
    ids=[
        *("list", "text", "empty", "kind", "contract", "deep", "deeper"),
        *("evidence", "deeper evidence", "reason"),
    ],
)
def test_a_damaged_ledger_gives_no_traceback(run: Run, tmp_path: Path, damage: str) -> None:
    job, _ = fill(tmp_path)
    place = str(tmp_path)
    tamper(str(tmp_path / "ledger.sqlite"), f"UPDATE noisemarket_entries SET {damage}")
    for command in (
        ("ls", place),
        ("show", place, job.contracts[0].id),
        ("verify", place),
        ("statement", place, "north"),
        ("export", place, "--csv", str(tmp_path / "out.csv")),
    ):
        code, _, err = run(*command)
        assert code in (0, 1, 2), command
        assert len(err.splitlines()) == (code != 0), command
    assert run("verify", place)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ls", "{empty}"], "has no ledger.sqlite"),
        (["verify", "{empty}/nothing"], "does not exist"),
        (["ls", "{empty}/text"], "is not a ledger"),
        (["ls", "mysql://x/y"], "give a folder, a file or a URL"),
        (["export", "{full}"], "name a file"),
        (["show", "{full}", "zz"], "hexadecimal"),
        (["show", "{full}", "0000000000000000"], "no contract"),
        (["statement", "{full}", "nobody"], "has no contract"),
        (["verify", "{full}", "--head", "abc"], "count:hash"),
        (["verify"], "FOLDER"),
        (["pay", "{full}"], "pay"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    (empty / "text").write_text("hello " * 1000)
    fill(full / "ledger.sqlite")
    code, out, err = run(*(each.format(empty=empty, full=full) for each in arguments))
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in empty.iterdir()] == ["text"]


def test_an_export_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    fill(tmp_path)
    for file in ("/dev/full", str(tmp_path / "none" / "out.csv")):
        for option in ("--csv", "--json"):
            code, _, err = run("export", str(tmp_path), option, file)
            assert code == 1
            assert err.startswith(f"noisemarket: {file} cannot be written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


def keys(document: Any) -> set[str]:
    """All keys of a document, but those inside terms, evidence and the money of each currency."""
    if isinstance(document, list):
        return set().union(*map(keys, document))
    if not isinstance(document, dict):
        return set()
    free = ("terms", "evidence", "money_micro")
    inside = (value for name, value in document.items() if name not in free)
    return set(document).union(*map(keys, inside))


def test_every_json_key_is_documented(run: Run, tmp_path: Path) -> None:
    job, _ = fill(tmp_path)
    place = str(tmp_path)
    documents = [
        json.loads(run(*command, "--json")[1])
        for command in (
            ("ls", place),
            ("show", place, job.contracts[0].id),
            ("verify", place),
            ("verify", place, "--head", "0" * 64),
            ("statement", place, "south"),
        )
    ]
    run("export", place, "--json", str(tmp_path / "out.json"))
    documents.append(json.loads((tmp_path / "out.json").read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "reference" / "output.md").read_text(encoding="utf-8")
    described = page.partition("\n## JSON of the ledger\n")[2]
    found = keys(documents)
    assert {"sound", "problem", "each_round", "previous", "budget_micro"} <= found
    assert {name for name in found if f"`{name}`" not in described} == set()
