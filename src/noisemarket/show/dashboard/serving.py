"""What a server needs to start: its token, a socket that listens, and a browser."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from uvicorn.protocols.http.h11_impl import H11Protocol

from noisemarket.errors import BadInput

TOKEN = "NOISEMARKET_TOKEN"
"""The environment variable that holds a token of one's own."""

HEADER_SECONDS = 10.0
"""How long a connection may take to send a request's headers."""

MOST_CONNECTIONS = 200
"""Connections from one address."""


class CarefulProtocol(H11Protocol):
    """HTTP in which nobody can take all connections, by opening many or by never finishing one."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        others = (one.client and self.client and one.client[0] == self.client[0]
                  for one in self.connections)  # fmt: skip
        if sum(map(bool, others)) > MOST_CONNECTIONS:
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def _watch(self) -> None:
        """Give the headers of a request a time; a request that is being answered has all time."""
        awaited = getattr(self.cycle, "response_complete", True)
        if awaited and self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.abort)
        elif not awaited and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def own_token() -> str | None:
    """The token that the user has set, if it can be used."""
    token = os.environ.get(TOKEN) or None
    if token is not None and (len(token) < 16 or not token.isascii() or not token.isalnum()):
        raise BadInput(TOKEN, "the token", "use 16 letters and digits or more.")
    return token


@contextmanager
def opening(address: str, folder: Path) -> Iterator[None]:
    """Open an address in the browser, once the server is there.

    The browser is given a file that leads to the address: all users of this machine can read what
    programs are started with, and nobody else can read the file. It is put into ``folder``, since
    browsers in a sandbox cannot read the system's own folder.
    """
    with tempfile.TemporaryDirectory(prefix="open-", dir=folder) as temporary:
        page = Path(temporary) / "open.html"
        leads = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">'
        page.write_text(f'<!doctype html>{leads}<p><a href="{address}">The dashboard</a></p>')
        timer = Timer(0.5, webbrowser.open, [page.as_uri()])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; BadInput if nothing can."""
    listening: socket.socket | None = None
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)  # browsers may connect at once
    except (OSError, OverflowError, UnicodeError) as problem:
        if listening is not None:
            listening.close()
        why = getattr(problem, "strerror", None) or problem
        raise BadInput("port", port, f"cannot be used on {host} ({why}): give another.") from None
    return listening


def has_screen() -> bool:
    """Whether a browser window can be expected to open."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
