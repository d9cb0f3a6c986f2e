"""A grid in the test's process whose calls go to a real one, in a ServerApp of a real run.

The app has no curator: its ``main`` does what this process asks it to, until it is told to end. So
the suites that take a grid also run where Flower's own processes carry the messages.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Message
from tests.flower.conftest import OneRun

from noisemarket.flower.deploy.app_folder import write_app
from noisemarket.flower.deploy.superlink import SuperLink

SOCKET, KEY = "RELAY_SOCKET", "RELAY_KEY"

_SERVER = '''"""Does what the test asks for."""

import os
from multiprocessing.connection import Client

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    with Client(os.environ["RELAY_SOCKET"], authkey=os.environ["RELAY_KEY"].encode()) as line:
        while True:
            what, given = line.recv()
            if what == "end":
                return
            if what == "nodes":
                line.send([(one.node_id, one.name) for one in grid.get_nodes()])
            elif what == "push":
                made = [Message(content, to, kind, ttl=ttl, group_id=group)
                        for content, to, kind, ttl, group in given]
                line.send(list(grid.push_messages(made)))
            else:
                line.send(list(grid.pull_messages(given)))
'''


class RelayGrid(OneRun):
    """What a ServerApp does with its grid, asked for from here."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def _ask(self, what: str, given: Any = None) -> Any:
        self._line.send((what, given))
        return self._line.recv()

    def get_node_ids(self) -> Iterable[int]:
        return [number for number, _ in self._ask("nodes")]

    def get_nodes(self) -> Iterable[Any]:
        return [SimpleNamespace(node_id=n, name=name) for n, name in self._ask("nodes")]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._ask("push", [
            (one.content, one.metadata.dst_node_id, one.metadata.message_type, one.metadata.ttl,
             one.metadata.group_id) for one in messages
        ])  # fmt: skip

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._ask("pull", list(message_ids))

    def send_and_receive(self, *args: Any, **kwargs: Any) -> Iterable[Message]:
        raise NotImplementedError

    def end(self) -> None:
        self._line.send(("end", None))


@contextlib.contextmanager
def relay_variables(place: Path) -> Iterator[tuple[str, bytes]]:
    """To be entered before Flower's processes start: they must know where this one listens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SOCKET, str(place / "s"))
        patch.setenv(KEY, key := secrets.token_hex(16))
        yield os.environ[SOCKET], key.encode()


@contextlib.contextmanager
def relayed(flower: SuperLink, socket: str, key: bytes) -> Iterator[RelayGrid]:
    """A grid of a run on this SuperLink, for as long as the block lasts."""
    app = write_app(flower.folder / "relay")
    (app / "market_app" / "server_app.py").write_text(_SERVER)
    with Listener(socket, authkey=key) as listener, ThreadPoolExecutor(1) as pool:
        running = pool.submit(flower.run, app)
        with listener.accept() as line:
            grid = RelayGrid(line)
            yield grid
            grid.end()
        assert running.result().completed
