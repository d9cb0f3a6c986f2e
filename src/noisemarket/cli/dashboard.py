"""``noisemarket dashboard``: the market in a browser."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import webbrowser
from pathlib import Path
from threading import Timer

from noisemarket.errors import BadInput, MissingExtra

TOKEN = "NOISEMARKET_TOKEN"
"""The environment variable that holds a token of one's own."""


def run(folder: str, host: str, port: int, most_runs: int, show: bool) -> None:
    """Serve a folder of runs until Ctrl-C."""
    try:
        import uvicorn

        from noisemarket.dashboard.run_store import RunStore
        from noisemarket.dashboard.security import new_token
        from noisemarket.dashboard.web_app import web_app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] in ("fastapi", "uvicorn", "starlette"):
            raise MissingExtra("noisemarket dashboard", "dashboard") from None
        raise
    store = RunStore(Path(folder))
    token = os.environ.get(TOKEN) or None
    if token is not None and (len(token) < 16 or not token.isascii() or not token.isalnum()):
        raise BadInput(TOKEN, "the token", "use 16 letters and digits or more.")
    if token is None and not is_loopback(host):
        token = new_token()
    listening = listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    address += f"?token={token}" if token else ""
    print(f"Runs of {store.root} at {address}", flush=True)
    print("Ctrl-C ends the page; runs that were started from it go on.", flush=True)
    if show and has_screen():
        Timer(0.5, webbrowser.open, [address]).start()
    config = uvicorn.Config(
        web_app(store, token=token, most_runs=most_runs), log_level="warning", access_log=False,
        server_header=False, timeout_graceful_shutdown=2,
    )  # fmt: skip
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        BadInput: nothing can listen there.
    """
    listening: socket.socket | None = None
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(128)  # who reads the address may come at once
    except (OSError, OverflowError, UnicodeError) as problem:
        if listening is not None:
            listening.close()
        remedy = f"cannot be used ({getattr(problem, 'strerror', None) or problem}): give another."
        raise BadInput("--host", f"{host}:{port}", remedy) from None
    return listening


def has_screen() -> bool:
    """Whether a browser window can be expected to open."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
