"""Owners over Flower compute their own standing, from what they sent and what they get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.flower.job_ends import job_of, own
from tests.flower.market_common import NAMES, grid_of, hold, make_scenario

from noisemarket.cli import main
from noisemarket.ledger.contract import is_key
from noisemarket.owner.folder import Declined, owner_folder
from noisemarket.owner.own_standing import directions_in, keep_shown

pytestmark = pytest.mark.process


def test_owners_get_the_directions_at_the_end_and_compute_their_own_standing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The digest comes before the upload, the directions after the settlement, and not sooner."""
    folder = tmp_path / "run"
    scenario = make_scenario(folder, reference_records=12)
    grid, seen = grid_of(scenario, folder), list[str]()
    push = grid.push_messages

    def watched(messages: Any) -> Any:
        made = list(messages)
        seen.extend(one.metadata.message_type for one in made)
        for one in made:
            if one.metadata.message_type == "train":
                assert is_key(one.content["config"]["reference"])
                assert list(one.content["arrays"]) == ["weights"]
        return push(made)

    grid.push_messages = watched  # type: ignore[method-assign]
    hold(grid, scenario, folder)
    assert seen[-6:] == ["query.reference"] * 6  # two rounds, three owners
    assert seen.index("query.reference") > max(n for n, one in enumerate(seen) if one == "train")
    for name in NAMES:
        with pytest.raises(SystemExit) as end:
            main(["owner", "standing", str(owner_folder(folder / "owners", name)), "--json"])
        assert end.value.code == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["owner"], found["rounds"], found["agrees"]) == (name, 2, True)
    mine = own(folder, "1")
    rows = directions_in(mine.job(job_of(folder)) / "reference", 1)
    assert rows is not None
    with pytest.raises(Declined, match="not the directions that were named before the upload"):
        keep_shown(mine, job_of(folder), 1, -rows)
