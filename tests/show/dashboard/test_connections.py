"""Connections that nobody can take away from others, and names that are given once."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.show.dashboard import launcher, serving
from noisemarket.show.dashboard.launcher import Launcher
from noisemarket.show.dashboard.run_store import RunStore

HALF, WHOLE = b"GET / HTTP/1.1\r\nhost: here\r\n", b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
PATIENCE = 30.0


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """The smallest application."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"hi"})


Connect = Callable[..., socket.socket]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Opens connections to a server that takes 20 of them, and says something."""
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 20)
    listening = serving.listen("127.0.0.1", 0)
    config = uvicorn.Config(
        hello, log_level="error", lifespan="off", ws="none", http=serving.CarefulProtocol
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    with ExitStack() as made, listening:

        def connect(said: bytes = b"") -> socket.socket:
            one = made.enter_context(socket.create_connection(listening.getsockname(), PATIENCE))
            one.sendall(said)
            return one

        yield connect
        server.should_exit = True
        made.close()
        thread.join(PATIENCE)


def answer(made: socket.socket) -> bytes:
    """What comes until an answer is whole or the connection ends."""
    heard = b""
    with suppress(ConnectionError):
        while b"hi" not in heard and (part := made.recv(1000)):
            heard += part
    return heard


def test_half_requests_end_and_others_are_answered_meanwhile(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that goes on sending a header now and then, and one after a whole request."""
    monkeypatch.setattr(serving, "HEADER_SECONDS", 0.5)
    silent, half, second = connect(), connect(HALF), connect(WHOLE)
    assert answer(second).endswith(b"hi")
    second.sendall(HALF)
    trickling = connect(HALF)
    with pytest.raises(ConnectionError):  # noqa: PT012 - sooner or later
        for number in range(200):
            trickling.sendall(b"x-%d: 1\r\n" % number)
            time.sleep(0.05)
    assert answer(connect(WHOLE)).endswith(b"hi")
    for made in (silent, half, second):
        assert answer(made) == b""


def test_one_address_has_so_many_connections(connect: Connect) -> None:
    made = [connect(HALF) for _ in range(20)]
    assert answer(connect(WHOLE)) == b""
    for one in made:
        one.close()
    end = time.monotonic() + PATIENCE
    while not (heard := answer(connect(WHOLE))) and time.monotonic() < end:
        time.sleep(0.05)
    assert heard.endswith(b"hi")


@pytest.mark.process
def test_a_start_that_takes_long_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of a new shape measures its loss surface for minutes before it has a folder."""
    codes = {
        "works": "import os, time; time.sleep(1); os.makedirs({0!r}); "
        "open({0!r} + '/status.json', 'w').write('{{}}'); time.sleep(30)",
        "fails": "import time; time.sleep(1); raise SystemExit(2)",
    }

    def spawned(self: Launcher, run: str, words: Any) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([sys.executable, "-c", codes[run].format(words[-1])])
        self._children[run] = child
        return child

    monkeypatch.setattr(Launcher, "_spawn", spawned)
    monkeypatch.setattr(launcher, "PATIENCE", 0.1)
    starter = Launcher(RunStore(tmp_path), most=2)
    for run in codes:
        assert not starter.start(run, "run", [])
    while not starter.begun("works"):
        pass
    starter._children["works"].kill()
    for child in starter._children.values():
        child.wait()
    with pytest.raises(BadInput, match="ended before it began"):
        starter.begun("fails")


@pytest.mark.process
def test_of_simultaneous_starts_of_one_name_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spawned(self: Launcher, run: str, words: Any) -> subprocess.Popen[bytes]:
        """A command that takes its time to make its folder."""
        code = f"import os, time; time.sleep(0.3); os.makedirs({words[-1]!r}); " + (
            f"open({words[-1] + '/status.json'!r}, 'w').write('{{}}'); time.sleep(30)"
        )
        child = subprocess.Popen([sys.executable, "-c", code])
        self._children[run] = child
        return child

    monkeypatch.setattr(Launcher, "_spawn", spawned)
    launcher, refused = Launcher(RunStore(tmp_path), most=2), list[str]()

    def start() -> None:
        try:
            launcher.start("same", "run", [])
        except NoisemarketError as problem:
            refused.append(str(problem))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    (child,) = launcher._children.values()
    child.kill()
    child.wait()
    assert len(refused) == 5
    assert all("exists already" in one for one in refused)
