"""What an owner's process imports: Flower starts one for every message, and imports are its cost.

A whole job is played here. Then one owner's messages are answered again, from the same folder, in
a new process that says after each of them what it has loaded.
"""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.flower.job_ends import own
from tests.flower.market_common import NAMES, grid_of, hold, make_scenario

pytestmark = pytest.mark.process

OWNER = 100

REPLAY = """
import json, pickle, sys
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

from noisemarket.flower.owner_app import owner_app

app, seen = owner_app(), []
config, messages = pickle.loads(Path(sys.argv[1]).read_bytes())
for kind, content in messages:
    reply = app(Message(content, 100, kind), Context(1, 100, config, RecordDict(), {}))
    loaded = [name for name in ("torch", "scipy", "numba", "ray") if name in sys.modules]
    seen.append([kind, str(reply.error) if reply.has_error() else "", loaded])
print(json.dumps(seen))
"""


@pytest.mark.parametrize("mechanism", ["clock", "dypp"])
def test_an_owner_loads_what_a_message_needs_and_never_torch(
    mechanism: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    more = {"mechanism": mechanism, "rounds": 1, "iterations": 200}
    scenario = make_scenario(folder, **more)
    grid = grid_of(scenario, folder, named=False)
    for name in NAMES:
        assert own(folder, name).key  # made now: it is in the contract
    shutil.copytree(folder / "owners", tmp_path / "before")
    hold(grid, scenario, folder, insecure=True)
    shutil.rmtree(folder / "owners")
    (tmp_path / "before").rename(folder / "owners")

    sent = [one for one in grid.sent if one.metadata.dst_node_id == OWNER]
    messages = [(one.metadata.message_type, one.content) for one in sent]
    given = tmp_path / "messages"
    given.write_bytes(pickle.dumps((grid.nodes[OWNER].config, messages)))
    command = [sys.executable, "-c", REPLAY, str(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    kinds = [kind for kind, _, _ in seen]
    assert {"query.hello", "query.key", "query.contract", "query.signed", "train"} <= {*kinds}
    assert all(problem == "" for _, problem, _ in seen)
    before = kinds.index("query.contract")  # what a contract costs in epsilon, the owner computes
    plays = {"numba", "scipy"} if mechanism == "dypp" else set()  # a learner's rule is compiled
    assert all(set(loaded) <= plays for _, _, loaded in seen[:before]), seen
    assert all(set(loaded) <= plays | {"scipy"} for _, _, loaded in seen[before:]), seen
