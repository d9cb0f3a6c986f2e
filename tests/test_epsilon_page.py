"""The page on computing epsilon: its commands and its program print what it shows."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from noisemarket.cli import main

PAGE = (Path(__file__).parent.parent / "docs" / "how-to" / "epsilon.md").read_text("utf-8")
COMMANDS = re.findall(r"```console\n\$ noisemarket (.*)\n((?:.*\n)*?)```", PAGE)


@pytest.mark.parametrize(("words", "shown"), COMMANDS, ids=[words for words, _ in COMMANDS])
def test_a_command_prints_what_the_page_shows(
    words: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(shlex.split(words))
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(shown)


def test_dp_accounting_agrees_as_the_page_shows() -> None:
    (program,) = re.findall(r"```python\n(.*?)```\n", PAGE, re.DOTALL)
    (shown,) = re.findall(r"```\n\n {4}([\d.]+)\n", PAGE)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(program, {})
    assert printed.getvalue() == f"{shown}\n"
    assert f"epsilon {shown}" in COMMANDS[1][1]


def test_the_page_is_short() -> None:
    assert len(COMMANDS) == 2
    assert len(PAGE.split()) <= 600
