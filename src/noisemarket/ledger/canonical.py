"""One way to write a document down, so that its bytes can be signed and hashed: RFC 8785.

Any language has a library for the JSON Canonicalization Scheme, so anyone can verify a ledger.
"""

from __future__ import annotations

import json
from typing import Any

import rfc8785


def canonical(document: Any) -> str:
    """A document as canonical JSON (RFC 8785).

    Keys are sorted, there is no white space, and a number is written as JavaScript writes it: a
    whole one without a point. Whole numbers lie within 2^53: beyond, readers would round them.

    Raises:
        ValueError: it has no such form, as infinity, NaN, larger whole numbers and other types.
    """
    return rfc8785.dumps(document).decode()


def parse(text: str | bytes) -> Any:
    """The document of a canonical JSON text.

    Raises:
        ValueError: ``canonical`` would have written it differently.
    """
    if isinstance(text, bytes):
        text = text.decode()
    try:
        document = _decode(text)
        same = canonical(document) == text
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not same:
        raise ValueError("not canonical JSON")
    return document


def _whole(digits: str) -> float:
    """A number without a point: exact within 2^53, a float beyond, as for every other reader."""
    number = float(digits)
    return int(digits) if abs(number) < 2**53 else number


_decode = json.JSONDecoder(parse_int=_whole).decode
