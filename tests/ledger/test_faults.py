"""What the disk, the server and the installation can do to a ledger: one sentence, nothing half."""

import contextlib
import importlib.util
import sqlite3
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ledger.common import NOW, Job, key
from tests.ledger.postgres import NOBODY
from tests.ledger.processes import ROOT
from tests.ledger.tampering import COLUMNS, drop_guards, execute

from noisemarket.errors import BadInput, LedgerBroken, LedgerError, LedgerLost, MissingExtra
from noisemarket.ledger import store
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from noisemarket.market.offers import settle

pytestmark = pytest.mark.slow

FULL = """
import resource, sys
from noisemarket.errors import LedgerError
from noisemarket.ledger.store import open_ledger
from tests.ledger.common import Job, key
with open_ledger(sys.argv[1], curator=key('curator')) as ledger:
    job = Job.of([f"o{number}" for number in range(200)], payment=1)
    ledger.append(job.opening())
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        ledger.append(job.signing())
    except LedgerError as problem:
        print(problem)
"""

READ_ONLY = """
import os, sys
from noisemarket.errors import NoisemarketError
from noisemarket.ledger.store import open_ledger
from noisemarket.ledger.verification import verify
from tests.ledger.common import Job, key
ME = {'curator': key('curator')}
with open_ledger(sys.argv[1], create=False) as ledger:  # imports all, while it may
    verify(ledger)
if os.geteuid() == 0:
    os.setegid(int(sys.argv[2])); os.seteuid(int(sys.argv[2]))
with open_ledger(sys.argv[1], create=False) as ledger:
    print(verify(ledger).entries)
for use in (
    lambda: open_ledger(sys.argv[1], create=False, **ME).append(Job.of(job="other").opening()),
    lambda: open_ledger(sys.argv[1], **ME).append(Job.of(job="other").opening()),
    lambda: open_ledger(sys.argv[1] + ".new"),
):
    try:
        use()
    except NoisemarketError as problem:
        print(problem)
"""


def python(script: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.process
def test_a_full_disk_leaves_the_ledger_as_it_was(sqlite_place: str) -> None:
    open_ledger(sqlite_place).close()
    room = Path(sqlite_place).stat().st_size + 40_000
    (said,) = python(FULL, sqlite_place, str(room))
    assert said.startswith(f"ledger {sqlite_place} cannot be written: ")
    with open_ledger(sqlite_place, create=False) as ledger:
        assert verify(ledger).entries == 2
    with open_ledger(sqlite_place, curator=key("curator")) as ledger:
        ledger.append(Job.of([f"o{number}" for number in range(200)], payment=1).signing())
        assert verify(ledger).entries == 403


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
@pytest.mark.process
def test_a_read_only_folder() -> None:
    with tempfile.TemporaryDirectory() as folder:  # one that any user may enter
        place = Path(folder) / "ledger.sqlite"
        with open_ledger(place, curator=key("curator")) as ledger:
            ledger.append(Job.of().opening())
        place.chmod(0o444)
        Path(folder).chmod(0o555)
        count, *said = python(READ_ONLY, str(place), str(NOBODY))
        assert count == "2"
        assert len(said) == 3
        assert all("cannot be written: " in line for line in said), said
        assert [path.name for path in Path(folder).iterdir()] == ["ledger.sqlite"]


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a ledger, but long enough to look like a file" * 100)
    for place, said in (
        (tmp_path / "file", "is not a ledger"),
        (tmp_path / "file" / "inside", "cannot be written"),
        ("mysql://host/base", "give a folder, a file or a URL"),
        ("sqlite://", "give a folder, a file"),
        ("postgresql://:::", "cannot be read"),
    ):
        with pytest.raises(BadInput, match=said):
            open_ledger(place)


def test_opening_for_reading_makes_nothing(tmp_path: Path, postgres_place: str) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        open_ledger(tmp_path, create=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="is not a ledger"):
        open_ledger(postgres_place, create=False)
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"
    assert execute(postgres_place, tables) == [(0,)]
    sqlite3.connect(tmp_path / "ledger.sqlite").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as empty, empty:
        empty.execute("CREATE TABLE other (id INTEGER)")
    with pytest.raises(BadInput, match="is not a ledger"):
        open_ledger(tmp_path, create=False)


def test_a_newer_ledger_is_not_called_lost(tmp_path: Path) -> None:
    note, place = tmp_path / "head.json", str(tmp_path / "ledger.sqlite")
    with open_ledger(place, curator=key("curator"), note=note) as ledger:
        ledger.append(Job.of().opening())
    execute(place, "UPDATE noisemarket_schema SET version = 99")
    with pytest.raises(BadInput, match="has schema 99 and this noisemarket reads"):
        open_ledger(place, curator=key("curator"), note=note)


def test_a_lost_ledger_is_named_without_its_password(tmp_path: Path, postgres_place: str) -> None:
    note = tmp_path / "head.json"
    note.write_text(f'{{"head": "3:{"a" * 64}"}}')
    url = f"{postgres_place}{'&' if '?' in postgres_place else '?'}password=hush-hush"
    with pytest.raises(LedgerLost, match="lacks entry 3, which the curator") as told:
        open_ledger(url, curator=key("curator"), note=note)
    assert "hush" not in str(told.value)
    for missing in (tmp_path / "none.sqlite", note):
        with pytest.raises(LedgerLost, match="Restore a backup"):
            open_ledger(missing, curator=key("curator"), note=note)


def test_a_folder_holds_its_ledger(tmp_path: Path) -> None:
    with open_ledger(tmp_path, curator=key("curator")) as ledger:
        Job.of().begin(ledger)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


def test_a_server_that_is_not_there_and_a_password_that_is_not_told(tmp_path: Path) -> None:
    url = f"postgresql://me:s3cret@/base?host={tmp_path}"
    with pytest.raises(LedgerError, match="cannot be written") as problem:
        open_ledger(url)
    assert "s3cret" not in str(problem.value)
    assert "\n" not in str(problem.value)


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert importlib.util.find_spec("sqlalchemy")
    with pytest.raises(MissingExtra, match=r"noisemarket\[postgres\]"):
        open_ledger("postgresql://nobody@/nothing")


def test_insert_or_replace_is_refused(sqlite_place: str) -> None:
    with open_ledger(sqlite_place, curator=key("curator")) as ledger:
        Job.of().begin(ledger)
        columns = ", ".join(COLUMNS[1:])
        for seq in ("3", "(SELECT max(seq) + 1 FROM noisemarket_entries)"):
            with pytest.raises(sqlite3.IntegrityError, match="only grows"):
                execute(
                    sqlite_place,
                    f"INSERT OR REPLACE INTO noisemarket_entries SELECT {seq}, {columns} "
                    "FROM noisemarket_entries WHERE seq = 3",
                )
        verify(ledger)


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a ledger with a settled job."""
    place = tmp_path_factory.mktemp("settled") / "ledger.sqlite"
    with open_ledger(place, clock=lambda: NOW, curator=key("curator")) as ledger:
        job = Job.of()
        job.begin(ledger)
        settle(ledger, job.name, job.verdicts())
    drop_guards(str(place))
    return place.read_bytes()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seq=st.integers(1, 20),
    column=st.sampled_from(COLUMNS),
    value=st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=30)
    | st.integers(-(2**62), 2**62)
    | st.none()
    | st.binary(max_size=10),
)
def test_any_single_edit_is_found(
    settled: bytes, sqlite_place: str, seq: int, column: str, value: Any
) -> None:
    Path(sqlite_place).write_bytes(settled)
    with contextlib.closing(sqlite3.connect(sqlite_place)) as file:
        old = file.execute(f"SELECT {column} FROM noisemarket_entries WHERE seq = ?", (seq,))
        before = old.fetchone()[0]
        try:
            with file:
                file.execute(
                    f"UPDATE noisemarket_entries SET {column} = ? WHERE seq = ?", (value, seq)
                )
        except sqlite3.Error:
            return  # the database itself refused
        after = file.execute(f"SELECT {column} FROM noisemarket_entries").fetchall()
    with open_ledger(sqlite_place, create=False) as ledger:
        if (before,) in after and value == before:
            verify(ledger)
        else:
            with pytest.raises(LedgerBroken):
                verify(ledger)


def test_verification_takes_constant_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight times the jobs, one after the other: the peak stays where it was."""
    monkeypatch.setattr(store, "PAGE", 50)
    peaks = []
    with open_ledger(tmp_path, curator=key("curator")) as ledger:
        for upto in (2, 16):
            for number in range(0 if upto == 2 else 2, upto):
                job = Job.of(
                    [f"o{each}" for each in range(10)], f"job-{number}", rounds=10, rho_cap=0.02
                )
                job.begin(ledger)
                settle(ledger, job.name, job.verdicts())
            tracemalloc.start()
            assert verify(ledger).jobs == upto
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    folder = tmp_path / "a b?mode=ro#c%20d"
    folder.mkdir()
    with open_ledger(folder, curator=key("curator")) as ledger:
        ledger.append(Job.of().opening())
    assert [path.name for path in folder.iterdir()] == ["ledger.sqlite"]
    with open_ledger(folder, create=False) as ledger:
        assert verify(ledger).jobs == 1
