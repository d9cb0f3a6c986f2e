"""Who may talk to the server: the right host, the right origin, who has the token."""

from __future__ import annotations

import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

SIGN_IN = Path(__file__).parent / "static" / "sign-in.html"
MOST_BYTES = 64 * 1024
"""Length of a request's body at most."""

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        b"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


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

    Args:
        app: what answers.
        token: the token; None where all who reach the server may use it.
    """

    def __init__(self, app: AsgiApp, token: str | None = None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [*HEADERS]
                if scope["path"].startswith("/api/"):
                    own.append((b"cache-control", b"no-store"))
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        if self._token is not None and (given := _asked_token(scope)) is not None:
            await self._sign_in(headers, given, sending)
            return
        if problem := self._problem(scope["method"], headers):
            if (
                problem[0] == 401
                and scope["path"] == "/"
                and "text/html" in headers.get("accept", "")
            ):
                await _answer(sending, 401, b"text/html; charset=utf-8", SIGN_IN.read_bytes())
            else:
                await _refuse(sending, *problem)
            return
        await self._app(scope, receive, sending)

    def _problem(self, method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._token is None:
            if not is_loopback(_host_name(host)):
                return 403, "This server answers to localhost alone: open it by that name."
        elif not self._has_token(headers):
            return 401, "Open the address with its token, as the command printed it."
        if method in SAFE:
            return None
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return 403, "This request comes from a page of another site: refused."
        if origin is None and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return 403, "This request comes from a page of another site: refused."
        return _body_problem(headers)

    def _has_token(self, headers: dict[str, str]) -> bool:
        assert self._token is not None
        given = headers.get("authorization", "").removeprefix("Bearer ")
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_cookie(headers))
        except CookieError:
            cookie = None
        found = [given, cookie.value if cookie else ""]
        return any(secrets.compare_digest(one.encode(), self._token.encode()) for one in found)

    async def _sign_in(self, sent: dict[str, str], given: str, send: Send) -> None:
        """Trade the token of the address for a cookie, so that it stays out of the address bar.

        The cookie comes along with a link from elsewhere (``Lax``), as the token in a link does.
        What a page of another origin could do with it is refused by the other rules.
        """
        assert self._token is not None
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            if "text/html" in sent.get("accept", ""):
                await _answer(send, 401, b"text/html; charset=utf-8", SIGN_IN.read_bytes())
            else:
                await _refuse(send, 401, "This token is wrong: see what the command printed.")
            return
        cookie = f"{_cookie(sent)}={self._token}; Path=/; HttpOnly; SameSite=Lax"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _cookie(headers: dict[str, str]) -> str:
    """The name of the cookie: another for each port, as cookies are the same for all ports.

    It is the port that the browser asked for, which a tunnel may have made another than ours.
    """
    try:
        return f"noisemarket-{urlsplit('//' + headers.get('host', '')).port or 80}"
    except ValueError:
        return "noisemarket"


def _asked_token(scope: Scope) -> str | None:
    if scope["path"] != "/" or scope["method"] != "GET":
        return None
    found = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token")
    return found[0] if found else None


def _body_problem(headers: dict[str, str]) -> tuple[int, str] | None:
    """What changes something must say how long it is, be short, and be JSON."""
    length = headers.get("content-length", "")
    if not length.isdecimal():
        return 411, "Say how long the request is."
    if int(length) > MOST_BYTES:
        return 413, "This request is too long."
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return None if kind == "application/json" else (415, "Send JSON (application/json).")


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


async def _refuse(send: Send, status: int, words: str) -> None:
    await _answer(send, status, b"application/json", json.dumps({"problem": words}).encode())


async def _answer(send: Send, status: int, kind: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
