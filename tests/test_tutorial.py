"""The first tutorial shows what its commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.commands import call_here

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial" / "first-market.md"


def commands(text: str) -> list[list[str]]:
    """The indented commands of a page, lines that go on joined."""
    joined = text.replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in re.findall(r"^    (noisemarket .*)$", joined, re.M)]


@pytest.mark.training
@pytest.mark.process
@pytest.mark.usefixtures("undrawn")
def test_a_small_market_is_as_the_tutorial_shows_it(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    _, run, ledger, statement, verify, _ = commands(text)
    seen = call_here(*run, cwd=tmp_path)
    shown = re.findall(r"^│.*│$", text.partition("## 4.")[0], re.M)
    assert shown
    assert [line for line in shown if line not in seen.stdout] == []
    rows = [line.split()[1:] for line in re.findall(r"^[0-9a-f]{12} .*$", text, re.M)]
    listed = [line.split()[1:] for line in call_here(*ledger, cwd=tmp_path).stdout.splitlines()]
    assert [row for row in rows if row not in listed] == []
    for words in (statement, verify):
        assert call_here(*words, cwd=tmp_path).returncode == 0


@pytest.mark.training
@pytest.mark.process
@pytest.mark.usefixtures("undrawn")
def test_tables_of_hospitals_are_as_the_page_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOISEMARKET_SURFACES", str(tmp_path / "surfaces"))
    pytest.importorskip("pyarrow")  # the extra "tables"
    root = PAGE.parents[2]
    (tmp_path / "examples").symlink_to(root / "examples")
    text = (PAGE.parent / "own-data.md").read_text(encoding="utf-8")
    describe, check, run, ledger, statement, account = commands(text)
    drafted = call_here(*describe, cwd=tmp_path).stdout
    assert drafted == (root / "examples" / "hospitals" / "columns.toml").read_text(encoding="utf-8")
    for block in re.findall(r"```toml\n(.*?)\n```", text, re.S):
        assert block in drafted
    seen = call_here(*check, cwd=tmp_path).stdout + call_here(*run, cwd=tmp_path).stdout
    shown = re.findall(r"^│.*│$", text, re.M)
    assert len(shown) == 4
    printed = [line.split() for line in seen.splitlines()]
    assert [line for line in shown if line.split() not in printed] == []
    rows = [line.split()[1:] for line in re.findall(r"^[0-9a-f]{12} .*$", text, re.M)]
    listed = [line.split()[1:] for line in call_here(*ledger, cwd=tmp_path).stdout.splitlines()]
    assert len(rows) == 2
    assert [row for row in rows if row not in listed] == []
    assert "Owner calder" in call_here(*statement, cwd=tmp_path).stdout
    (more,) = re.findall(r"^    (--owners-folder .*)$", text, re.M)
    for out in ("one", "two"):
        last = call_here(*run, *more.split(), "--no-baselines", "--out", out, cwd=tmp_path).stdout
    (said,) = re.findall(r"The second run says `(.*)`", text)
    assert said in last
    left = [line.split() for line in call_here(*account, cwd=tmp_path).stdout.splitlines()]
    (row,) = re.findall(r"^\w+ .*\d EUR$", text, re.M)
    assert row.split() in left
    readme = (root / "README.md").read_text(encoding="utf-8")
    for figure in re.findall(
        r"(\d+ of 12) hospitals .* for ([\d.]+ EUR) in all.* ([\d.]+ %) instead of ([\d.]+ %)",
        readme,
    )[0]:
        assert figure in seen
