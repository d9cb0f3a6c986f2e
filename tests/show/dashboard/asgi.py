"""Asks an ASGI application directly: no socket, no server, and nothing tidied up on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlencode

from starlette.types import ASGIApp


@dataclass(frozen=True)
class Answer:
    status_code: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """A browser that keeps cookies and sends a path exactly as it is given."""

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1:8050") -> None:
        self._app, self._host, self._cookie = app, host, ""

    def get(
        self, path: str, params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        if params:
            path += "?" + urlencode(params, doseq=True)
        return self._ask("GET", path, b"", headers or {})

    def post(
        self, path: str, content: bytes = b"{}", headers: Mapping[str, str] | None = None,
        *, said_length: bool = True,
    ) -> Answer:  # fmt: skip
        given = {"content-type": "application/json", **(headers or {})}
        if said_length:
            given = {"content-length": str(len(content)), **given}
        return self._ask("POST", path, content, given)

    def _ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        path, _, query = path.partition("?")
        sent = {"host": self._host, **headers}
        if self._cookie:
            sent["cookie"] = self._cookie
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": unquote(path), "raw_path": path.encode(), "root_path": "",
            "query_string": query.encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        }  # fmt: skip
        status, found, parts = asyncio.run(self._run(scope, body))
        if "set-cookie" in found:
            self._cookie = found["set-cookie"].partition(";")[0]
        return Answer(status, found, b"".join(parts).decode(errors="replace"))

    async def _run(
        self, scope: dict[str, Any], body: bytes
    ) -> tuple[int, dict[str, str], list[bytes]]:
        status, headers, parts, asked = 0, {}, [], False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.sleep(3600)
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {
                    name.decode().lower(): value.decode() for name, value in message["headers"]
                }
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, headers, parts
