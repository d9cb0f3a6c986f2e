"""Access control of the server: host, origin and token of a request."""

from __future__ import annotations

import ipaddress
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SIGN_IN = Path(__file__).parent / "static" / "sign-in.html"
MOST_BYTES = 64 * 1024
"""Length of a request's body at most."""

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)


class AccessControl:
    """Lets through what comes from a page of this server, and refuses the rest.

    - With a token, every request must bring it: as ``?token=`` once, then as a cookie, or as
      ``Authorization: Bearer``. Other users of this machine do not have it.
    - Without one (the server listens on this machine alone) the Host must be this machine: a page
      elsewhere cannot pass as this server by a name of its own (DNS rebinding).
    - What changes something must be JSON and must not come from a page of another origin.
    """

    def __init__(self, app: ASGIApp, token: str | None = None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if scope["path"].startswith("/api/"):
                    headers["cache-control"] = "no-store"
            await send(message)

        answer = self._own_answer(Request(scope)) or self._app
        await answer(scope, receive, sending)

    def _own_answer(self, request: Request) -> Response | None:
        """An answer before the application is asked: a sign-in, or a refusal."""
        at_root = request.scope["path"] == "/"
        given = request.query_params.get("token") if at_root else None
        if given and self._token is not None and request.method == "GET":
            if self._is_token(given):
                return self._signed_in(request)
            problem = 401, "This token is wrong: see what the command printed."
        elif found := self._problem(request):
            problem = found
        else:
            return None
        status, words = problem
        more = {"www-authenticate": "Bearer"} if status == 401 else None
        if status == 401 and at_root and "text/html" in request.headers.get("accept", ""):
            wrong = f'<p class="wrong" role="alert">{words}</p>' if given else ""
            page = SIGN_IN.read_text(encoding="utf-8").replace("<!-- wrong -->", wrong)
            return HTMLResponse(page, status, more)
        return JSONResponse({"problem": words}, status, more)

    def _problem(self, request: Request) -> tuple[int, str] | None:
        headers = request.headers
        if self._token is None:
            if not is_loopback(_asked_address(headers)[0]):
                return 403, "This server answers to localhost alone: open it by that name."
        else:
            bearer = headers.get("authorization", "").removeprefix("Bearer ")
            if not any(map(self._is_token, (bearer, request.cookies.get(_cookie(headers), "")))):
                return 401, "Open the address with its token, as the command printed it."
        if request.method in SAFE:
            return None
        origin, fetched = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is None:
            own = fetched in ("same-origin", "none")
        else:
            own = origin.partition("://")[2].lower() == headers.get("host", "").lower()
        if not own:
            return 403, "This request comes from a page of another site: refused."
        return _body_problem(headers)

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), str(self._token).encode())

    def _signed_in(self, request: Request) -> Response:
        """Trade the token of the address for a cookie, so that it stays out of the address bar.

        The cookie comes along with a link from elsewhere (``Lax``), as the token in a link does.
        The other rules refuse requests of a page of another origin that carry it.
        """
        name = _cookie(request.headers)
        cookie = f"{name}={self._token}; Path=/; HttpOnly; SameSite=Lax"
        return RedirectResponse("/", 303, {"set-cookie": cookie})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _asked_address(headers: Headers) -> tuple[str, int]:
    """Host and port that the browser asked for: a tunnel may have made them others than ours."""
    try:
        asked = urlsplit(f"//{headers.get('host', '')}")
        return asked.hostname or "", asked.port or 80
    except ValueError:
        return "", 80


def _cookie(headers: Headers) -> str:
    """The name of the cookie: another for each port, as cookies are the same for all ports."""
    return f"noisemarket-{_asked_address(headers)[1]}"


def _body_problem(headers: Headers) -> tuple[int, str] | None:
    """What changes something must say how long it is, be short, and be JSON."""
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return 411, "Say how long the request is."
    if int(length) > MOST_BYTES:
        return 413, "This request is too long."
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return None if kind == "application/json" else (415, "Send JSON (application/json).")
