"""``noisemarket dashboard``: the market in a browser."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from noisemarket.errors import BadInput, MissingExtra


def dashboard(
    runs: Annotated[
        str, Argument(metavar="RUNS_FOLDER", help="Folder that holds run folders.")
    ] = "runs",
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0: any free one.")] = 8050,
    most_runs: Annotated[int, Option(min=1, max=64, help="Runs that may go on at once.")] = 2,
    show: Annotated[bool, Option("--open/--no-open", help="Open the page in a browser.")] = True,
    token: Annotated[
        bool, Option(help="Require the token that the printed address contains.")
    ] = True,
    data: Annotated[
        list[str] | None,
        Option(help="Folder of data that a run may be started on; again for more."),
    ] = None,
    ledger: Annotated[
        list[str] | None,
        Option(help="URL of a ledger on a server that may be read; again for more."),
    ] = None,
) -> None:
    """Show runs in a browser: watch, start and compare them, and ask what if."""
    try:
        import uvicorn

        from noisemarket.show.dashboard import serving
        from noisemarket.show.dashboard.run_store import RunStore
        from noisemarket.show.dashboard.security import is_loopback, new_token
        from noisemarket.show.dashboard.web_app import web_app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] in ("fastapi", "uvicorn", "starlette"):
            raise MissingExtra("noisemarket dashboard", "dashboard") from None
        raise
    for url in ledger or ():
        if "://" not in url:
            raise BadInput("--ledger", url, "give the URL of a ledger on a server.")
    for folder in data or ():
        if not Path(folder).exists():
            raise BadInput("--data", folder, "does not exist: name a folder of data.")
    store = RunStore(Path(runs), ledger or (), data or ())
    if not token and not is_loopback(host):
        remedy = "others can reach it: leave out --no-token, or listen on 127.0.0.1."
        raise BadInput("--host", host, remedy)
    secret = (serving.own_token() or new_token()) if token else None
    listening = serving.listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    address += f"?token={secret}" if secret else ""
    print(f"Runs of {store.root} at {address}", flush=True)
    print("Ctrl-C ends the page; runs that were started from it go on.", flush=True)
    config = uvicorn.Config(
        web_app(store, token=secret, most_runs=most_runs), log_level="warning",
        access_log=False, server_header=False, timeout_graceful_shutdown=2,
        http=serving.CarefulProtocol, ws="none",
    )  # fmt: skip
    opened = show and serving.has_screen()
    with listening, serving.opening(address, store.private()) if opened else nullcontext():
        uvicorn.Server(config).run(sockets=[listening])
