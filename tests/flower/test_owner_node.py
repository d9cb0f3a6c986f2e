"""An owner's SuperNode as a service: its config checked, one line when turned away, health."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.commands import call

from noisemarket.errors import BadInput
from noisemarket.flower.deploy import owner_node
from noisemarket.flower.deploy.owner_node import OwnerNode, check_node, is_healthy

pytestmark = pytest.mark.process

TURNED_AWAY = """
echo started >> "$0.lives"
echo "Starting Flower SuperNode"
if [ $(wc -l < "$0.lives") -le {times} ]; then
    echo "Failed to activate SuperNode."
    exit 3
fi
echo "SuperNode ID: 7, poll $FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
{then}
"""


def fake(folder: Path, patch: pytest.MonkeyPatch, times: int, then: str) -> list[str]:
    """A ``flower-supernode`` that is turned away so many times; gives what is said."""
    script = folder / "flower-supernode"
    script.write_text("#!/bin/sh\n" + TURNED_AWAY.format(times=times, then=then))
    script.chmod(0o700)
    patch.setattr(owner_node, "flower_command", lambda name: str(script))
    patch.setattr(owner_node, "_PAUSE", 0.01)
    patch.setattr(owner_node.signal, "signal", lambda *given: None)
    return []


def test_a_node_that_is_turned_away_says_so_once_and_gets_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fake(tmp_path, monkeypatch, 3, "exit 5")
    assert OwnerNode([], said.append, poll=2.5).run() == 5
    (words,) = (line for line in said if "heartbeats" in line)
    assert "at most 60 seconds" in words
    assert "job goes on" in words
    assert said[-1] == "SuperNode ID: 7, poll 2.5"
    assert sum("Failed to activate" in line for line in said) == 1
    assert (tmp_path / "flower-supernode.lives").read_text().count("started") == 4


def test_a_node_that_is_never_let_in_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fake(tmp_path, monkeypatch, 10**6, "")
    monkeypatch.setattr(owner_node, "HEARTBEATS", 0.05)
    assert OwnerNode([], said.append).run() == 3
    assert "is it registered" in said[-1]


def test_a_node_that_is_stopped_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fake(tmp_path, monkeypatch, 0, "exec sleep 60")
    node = OwnerNode([], said.append)
    killer = threading.Thread(target=lambda: (time.sleep(0.5), node.stop()))
    killer.start()
    start = time.monotonic()
    assert node.run() == 0
    killer.join()
    assert time.monotonic() - start < 20


def test_a_config_that_cannot_serve_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file, folder = tmp_path / "node.toml", tmp_path / "north"
    for text, problem in (
        (None, "node.toml"),
        ("a = [", "is not TOML"),
        ('owner = "north"', "names no owner"),
        (f'owner = "north"\nowner-folder = "{folder}"', "is not there"),
    ):
        if text is not None:
            file.write_text(text)
        with pytest.raises(BadInput, match=problem):
            check_node(file)
    folder.mkdir(mode=0o700)
    with pytest.raises(BadInput, match="no rho-cap"):
        check_node(file)
    file.write_text(f'owner = "north"\nowner-folder = "{folder}"\nrho-cap = 2.0')
    assert list(check_node(file)) == ["north"]
    done = call("flower", "node", "--node-config", str(file), "--check", cwd=tmp_path)
    assert done.returncode == 0
    assert "north can take part" in done.stderr
    folder.chmod(0o755)
    done = call("flower", "node", "--node-config", str(file), cwd=tmp_path)
    assert done.returncode == 2
    assert "chmod 700" in done.stderr


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" and self.server.well else 503)
        self.end_headers()

    def log_message(self, *given: object) -> None:
        pass


@contextlib.contextmanager
def served(*, well: bool) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        server.well = well  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_health(tmp_path: Path) -> None:
    with served(well=True) as address:
        assert is_healthy(address) == ""
    assert "does not answer" in is_healthy(address)
    with served(well=False) as address:
        assert is_healthy(address) == f"{address} answers with status 503."
    with pytest.raises(BadInput, match="give a host and a port"):
        is_healthy("here")
    with pytest.raises(BadInput, match="is not a certificate"):
        is_healthy(address, tmp_path / "ca.crt")
