"""Whether a part of Flower answers: for the health checks of services and containers."""

from __future__ import annotations

import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from noisemarket.errors import BadInput

_SECONDS = 5.0


def is_healthy(address: str, certificates: Path | None = None) -> str:
    """What is wrong with a SuperLink or SuperNode; empty if it answers.

    Args:
        address: of its own API, as host and port.
        certificates: of the issuer of its certificate, where it has one.

    Raises:
        BadInput: the address or the certificate cannot be used.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadInput("HOST:PORT", address, "give a host and a port, as 127.0.0.1:9094.")
    if certificates is None:
        line = HTTPConnection(host, int(port), timeout=_SECONDS)
    else:
        try:
            context = ssl.create_default_context(cafile=str(certificates))
        except (OSError, ssl.SSLError) as problem:
            remedy = f"is no certificate ({problem})."
            raise BadInput("--root-certificates", str(certificates), remedy) from None
        line = HTTPSConnection(host, int(port), timeout=_SECONDS, context=context)
    try:
        line.request("GET", "/health")
        status = line.getresponse().status
    except (OSError, HTTPException) as problem:
        return f"{address} does not answer ({problem})."
    finally:
        line.close()
    return "" if status == 200 else f"{address} answers with status {status}."
