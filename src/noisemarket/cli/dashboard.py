"""``noisemarket dashboard``: the market in a browser."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Timer

from noisemarket.cli.app import DashboardOptions
from noisemarket.errors import BadInput, MissingExtra

TOKEN = "NOISEMARKET_TOKEN"
"""The environment variable that holds a token of one's own."""


def run(options: DashboardOptions) -> None:
    """Serve a folder of runs until Ctrl-C."""
    try:
        import uvicorn

        from noisemarket.show.dashboard.run_store import RunStore
        from noisemarket.show.dashboard.security import is_loopback, new_token
        from noisemarket.show.dashboard.web_app import web_app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] in ("fastapi", "uvicorn", "starlette"):
            raise MissingExtra("noisemarket dashboard", "dashboard") from None
        raise
    ledgers = tuple(options.ledger or ())
    for url in ledgers:
        if "://" not in url:
            raise BadInput("--ledger", url, "give the URL of a ledger on a server.")
    store = RunStore(Path(options.runs), ledgers)
    if not options.token and not is_loopback(options.host):
        remedy = "others can reach it: leave out --no-token, or listen on 127.0.0.1."
        raise BadInput("--host", options.host, remedy)
    token = (own_token() or new_token()) if options.token else None
    listening = listen(options.host, options.port)
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    address += f"?token={token}" if token else ""
    print(f"Runs of {store.root} at {address}", flush=True)
    print("Ctrl-C ends the page; runs that were started from it go on.", flush=True)
    config = uvicorn.Config(
        web_app(store, token=token, most_runs=options.most_runs), log_level="warning",
        access_log=False, server_header=False, timeout_graceful_shutdown=2,
    )  # fmt: skip
    shows = options.show and has_screen()
    with listening, opening(address, store.private()) if shows else nullcontext():
        uvicorn.Server(config).run(sockets=[listening])


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
        raise BadInput("--port", port, f"cannot be used on {host} ({why}): give another.") from None
    return listening


def has_screen() -> bool:
    """Whether a browser window can be expected to open."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
