"""What a server needs to start: its token, a socket that listens, and a browser."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from noisemarket.errors import BadInput

TOKEN = "NOISEMARKET_TOKEN"
"""The environment variable that holds a token of one's own."""


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
