"""Owners from a CSV or TOML file, alone and as part of a scenario."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.scenario.common import HEADER, complaint, setting

from noisemarket.game.population import FIELDS, OPTIONAL
from noisemarket.scenario import load_scenario
from noisemarket.scenario.population_file import read_owners

GOOD = [(0.5, 600.0, 1.0, 0.2), (4.0, 1.0, 20.0, 0.0)]


class TestPopulationFiles:
    @staticmethod
    def write(folder: Path, name: str, content: str | bytes) -> str:
        file = folder / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(file)

    @pytest.mark.parametrize(
        ("name", "content", "names"),
        [
            ("a.csv", f"{HEADER}\n0.5,600,1,0.2\n4,1,20,0\n", ["0", "1"]),
            ("b.csv", f"owner,{HEADER}\nanna,0.5,600,1,0.2\nbert,4,1,20,0\n", ["anna", "bert"]),
            ("c.csv", "beta,markup,owner,data_size,privacy_cost\n1,0.2,x y,600,0.5\n20,0,é,1,4\n",
             ["x y", "é"]),
            ("d.csv", f"\ufeff{HEADER}\r\n0.5,600,1,0.2\r\n\r\n4e0, 1 ,20,0", ["0", "1"]),
            ("e.csv", f'owner,{HEADER}\n"a, b",0.5,600,1,0.2\n"c",4,1,20,0\n', ["a, b", "c"]),
        ],
    )  # fmt: skip
    def test_are_read(self, name: str, content: str, names: list[str], tmp_path: Path) -> None:
        owners = read_owners(self.write(tmp_path, name, content))
        assert list(owners.names) == names
        needed = [field for field in FIELDS if field not in OPTIONAL]
        assert list(owners.columns) == needed
        assert list(zip(*(owners.columns[field] for field in needed), strict=True)) == GOOD

    @pytest.mark.parametrize("secrets", [True, False])
    def test_floors_are_read_if_there_are_any(self, secrets: bool, tmp_path: Path) -> None:
        file = self.write(tmp_path, "a.csv", f"{HEADER},floor\n1,1,1,0,0.25\n1,1,1,0,0\n")
        floors = read_owners(file, secrets=secrets).columns["floor"].tolist()
        assert floors == ([0.25, 0.0] if secrets else [0.0, 0.0])
        wrong = self.write(tmp_path, "b.csv", f"{HEADER},floor\n1,1,1,0,-1\n")
        assert "floor in line 2 is -1:" in complaint(lambda: read_owners(wrong))

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.csv", f"owner,{HEADER}\nanna,x,600,1,-1\n"),
            ("b.csv", "owner,data_size,beta\nanna,600,1\n"),
        ],
    )
    def test_are_read_without_secrets(self, name: str, content: str, tmp_path: Path) -> None:
        found = read_owners(self.write(tmp_path, name, content), secrets=False)
        assert found.names == ("anna",)
        values = {name: column.tolist() for name, column in found.columns.items()}
        nothing = {"privacy_cost": [0.0], "markup": [0.0], "floor": [0.0]}
        assert values == {"data_size": [600.0], "beta": [1.0], **nothing}

    def test_what_is_missing_is_as_for_other_owners(self, tmp_path: Path) -> None:
        file = self.write(tmp_path, "a.csv", "owner,beta\nanna,3\nbert,4\n")
        given = setting(f"file={file}", "markup=0.5").environment().population
        drawn = setting("owners=2").environment().population
        assert given.beta.tolist() == [3.0, 4.0]
        assert given.markup.tolist() == [0.5, 0.5]
        assert given.privacy_cost.tolist() == drawn.privacy_cost.tolist()
        assert given.data_size.tolist() == drawn.data_size.tolist()

    def test_all_problems_are_named_at_once(self, tmp_path: Path) -> None:
        rows = "a,x,1\nb,1\n\na,-1,0\n"
        message = complaint(
            lambda: read_owners(
                self.write(tmp_path, "a.csv", f"owner,privacy_cost,beta,colour\n{rows}")
            )
        )
        assert 'has unknown "colour"' in message
        assert "line 2 must have" in message
        assert "line 3 must have" in message
        file = self.write(tmp_path, "b.csv", f"owner,privacy_cost,beta\n{rows}")
        message = complaint(lambda: load_scenario(settings={"population.file": file}))
        assert "line 3 must have one value per column" in message
        assert "owner a stands in line 2 and in line 5" in message
        assert "privacy_cost in line 2 is x: give a finite number" in message
        assert "privacy_cost in line 5 is -1:" in message
        assert "beta in line 5 is 0:" in message

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (f"{HEADER}\nnan,1,1,0\n", "privacy_cost in line 2 is nan"),
            (f"{HEADER}\n1,1,1,0\n1,1,inf,0\n", "beta in line 3 is inf"),
            (f"{HEADER}\n1,many,1,0\n", "data_size in line 2 is many"),
            (f"{HEADER}\n1,,1,0\n", "data_size in line 2 is "),
            (f"owner,{HEADER}\na,1,1,1,0\nb,1,1,1,0\na,1,1,1,0\n", "a stands in line 2 and in"),
            ("", "names no column"),
            (f"{HEADER}\n", "give at least one owner"),
            (f"{HEADER}\n\n\n", "give at least one owner"),
            (f"{HEADER},colour\n1,1,1,0,red\n", 'has unknown "colour"'),
            (f"{HEADER},\n1,1,1,0,\n", 'has unknown ""'),
            (f"{HEADER}\n1,1,1\n", "line 2 must have one value per column"),
            (f"{HEADER}\n1,1,1,0\n1,1,1,0,5\n", "line 3 must have one value per column"),
            (f"{HEADER.replace(',', ';')}\n1;1;1;0\n", "with commas"),
            (f"{HEADER}\n-1,1,1,0\n", "privacy_cost in line 2 is -1"),
            (f"{HEADER}\n1,0,1,0\n", "data_size in line 2 is 0"),
            (f"{HEADER}\n1,1,0,0\n", "beta in line 2 is 0"),
            (f"{HEADER}\n1,1,1,-1\n", "markup in line 2 is -1"),
            (f"owner,{HEADER}\na\x1b[31m,1,1,1,0\n", "owner a\\x1b[31m in line 2: name it"),
            (f"owner,{HEADER}\n{'n' * 201},1,1,1,0\n", "more than 200 characters"),
            (b"owner\nn\xe9", "not a UTF-8 text file: see line 2"),
            (f"{HEADER},beta\n1,1,1,0,7\n", "beta"),
        ],
    )  # fmt: skip
    def test_csv_that_cannot_be_used(self, content: str | bytes, told: str, tmp_path: Path) -> None:
        file = self.write(tmp_path, "owners.csv", content)
        assert told in complaint(lambda: read_owners(file))

    def test_a_missing_file(self, tmp_path: Path) -> None:
        message = complaint(lambda: read_owners(str(tmp_path / "none.csv")))
        assert message.startswith("population.file ")
        assert "No such file" in message

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "cannot be read" in complaint(lambda: read_owners(str(tmp_path)))

    @pytest.mark.parametrize("read", [read_owners, load_scenario])
    def test_a_name_no_file_can_have(self, read: Callable[[str], object]) -> None:
        complaint(lambda: read("a\0b.toml"))

    def test_a_repeated_name_is_told_in_a_large_file_too(self, tmp_path: Path) -> None:
        rows = [f"o{i % 11_000},1,1,1,0" for i in range(11_001)]
        file = self.write(tmp_path, "owners.csv", "\n".join([f"owner,{HEADER}", *rows]))
        assert (
            complaint(lambda: read_owners(file)).count(
                "owner o0 stands in line 2 and in line 11002"
            )
            == 1
        )


class TestPopulationFilesInScenarios:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "people").mkdir()
        rows = "anna,0.5,600,1,0.2\nbert,4,1,20,0\n"
        (tmp_path / "people" / "owners.csv").write_text(f"owner,{HEADER}\n{rows}")
        (tmp_path / "job.toml").write_text('[population]\nfile = "people/owners.csv"\n')
        return tmp_path

    def test_a_path_is_relative_to_the_scenario(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for elsewhere in (folder.parent, folder, folder / "people"):
            monkeypatch.chdir(elsewhere)
            environment = load_scenario(folder / "job.toml").environment()
            assert list(environment.population.names) == ["anna", "bert"]

    def test_a_relative_scenario_path_works_too(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder)
        assert len(load_scenario("job.toml").environment()) == 2

    def test_an_absolute_path_stays(self, folder: Path) -> None:
        file = str(folder / "people" / "owners.csv")
        (folder / "other.toml").write_text(f"[population]\nfile = '{file}'\n")
        assert load_scenario(folder / "other.toml").population.file == file

    def test_without_a_scenario_file_it_is_relative_to_here(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder / "people")
        assert len(setting("file=owners.csv").environment()) == 2

    def test_the_file_says_how_many_owners_there_are(self, folder: Path) -> None:
        assert load_scenario(folder / "job.toml").population.owners == 2
        assert load_scenario(folder / "job.toml", settings=["N=2"]).population.owners == 2

    def test_another_number_of_owners_is_refused(self, folder: Path) -> None:
        message = complaint(
            lambda: load_scenario(folder / "job.toml", settings=["N=5"]).environment()
        )
        assert message.startswith("population.owners is 5: ")
        assert "has 2 owners" in message

    def test_a_bad_file_is_told_when_the_scenario_is_loaded(self, folder: Path) -> None:
        (folder / "people" / "owners.csv").write_text("colour\n1\n")
        assert "names no column" in complaint(lambda: load_scenario(folder / "job.toml"))

    def test_changes_call_its_owners_by_name(self, folder: Path) -> None:
        with (folder / "job.toml").open("a") as file:
            file.write('[[changes]]\nat = 5\nnames = ["bert"]\nset = { privacy_cost = 1.0 }\n')
        _, second = load_scenario(folder / "job.toml").environment().phases
        assert second.privacy_cost.tolist() == [0.5, 1.0]
