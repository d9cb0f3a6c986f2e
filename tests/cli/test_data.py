"""``noisemarket data``: a draft of a description, and every owner's records against it."""

import json
from pathlib import Path

import pytest
from tests.commands import assert_sentence, call_here

pytest.importorskip("pyarrow")  # the extra "tables"

HOSPITALS = Path(__file__).parents[2] / "examples" / "hospitals"


def test_check_prints_every_owner(tmp_path: Path) -> None:
    done = call_here("data", "check", str(HOSPITALS), "--json", cwd=tmp_path)
    assert done.returncode == 0
    owners = json.loads(done.stdout)["owners"]
    assert [one["owner"] for one in owners][-2:] == ["larkhill", "test.csv"]
    assert owners[0]["records"] == 64
    assert owners[0]["labels"] == {"benign": 31, "malignant": 33}
    assert sum(owners[0]["outside"].values()) == 14
    said = " ".join(call_here("data", "check", str(HOSPITALS), cwd=tmp_path).stdout.split())
    assert "which are clipped, and texts that are not listed. Missing: empty cells." in said


def test_check_names_what_is_wrong_and_shows_the_others(tmp_path: Path) -> None:
    for file in HOSPITALS.glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with (tmp_path / "calder.csv").open("a") as file:
        file.write("1,2\n")
    done = call_here("data", "check", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "has 2 values in line 54" in " ".join(done.stdout.split())
    (tmp_path / "ashford.csv").rename(tmp_path / "[b]ash.csv")
    assert "│ [b]ash " in call_here("data", "check", ".", cwd=tmp_path).stdout
    assert "bexley" in done.stdout


def test_an_owner_at_home_checks_its_own_file(tmp_path: Path) -> None:
    for name in ("calder.csv", "columns.toml"):
        (tmp_path / name).write_bytes((HOSPITALS / name).read_bytes())
    alone = json.loads(call_here("data", "check", "calder.csv", "--json", cwd=tmp_path).stdout)
    assert [(one["owner"], one["records"]) for one in alone["owners"]] == [("calder", 52)]
    assert alone["remarks"] == []
    folder = json.loads(call_here("data", "check", ".", "--json", cwd=tmp_path).stdout)
    assert folder["owners"] == alone["owners"]
    assert "lacks test.csv" in folder["remarks"][0], "the curator's run would refuse it"


def test_test_records_that_owners_have_are_told_by_every_command(tmp_path: Path) -> None:
    for file in HOSPITALS.glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "test.csv").write_bytes((HOSPITALS / "calder.csv").read_bytes())
    words = ("negotiate", "--mechanism", "clock", "--set", "data=.", "--set", "currency=EUR")
    done = call_here(*words, "--json", cwd=tmp_path)
    assert "52 of 52 records in test.csv equal records of owners" in done.stderr
    assert json.loads(done.stdout)["currency"] == "EUR"


def test_a_missing_folder_and_a_bad_file_are_sentences(tmp_path: Path) -> None:
    done = call_here("data", "check", "nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert_sentence(done.stderr)
    (tmp_path / "test.csv").write_text("")
    done = call_here("data", "describe", "test.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert_sentence(done.stderr)


def test_label_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("ill,age\n" + "".join(f"{n % 2},{n}\n" for n in range(40)))
    done = call_here("data", "describe", "test.csv", "--label", "ill", cwd=tmp_path)
    assert 'column = "ill"\nclasses = ["0", "1"]' in done.stdout
    assert "--label" not in done.stdout
    last = call_here("data", "describe", str(HOSPITALS / "test.csv"), cwd=tmp_path).stdout
    assert "--label names another.\n[label]\n" in last
