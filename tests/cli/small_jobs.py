"""What ``noisemarket`` is told to run a market on a few images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands import assert_sentence
from tests.market.common import settings

from noisemarket.cli import main

PLAYED = 5
"""Rounds."""


def run_words(images: Path, **more: Any) -> list[str]:
    given = settings(images, **{"rounds": PLAYED, **more})
    if "file" in given:
        del given["owners"]
    pairs = [f"{name}={json.dumps(value)}" for name, value in given.items()]
    return ["run", "--workers", "1", *(word for pair in pairs for word in ("--set", pair))]


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, said = capsys.readouterr()
    assert (end.value.code, out) == (code, ""), said
    assert_sentence(said)
    return str(said)
