"""Documents that are signed and hashed: checked by pydantic, written down in one way (RFC 8785).

Any language has a library for the JSON Canonicalization Scheme, so anyone can verify a ledger.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Self

import rfc8785
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from noisemarket.errors import BadInput
from noisemarket.ledger.money import MOST

_HEX = re.compile(r"[0-9a-f]{64}")


def is_key(value: object) -> bool:
    """Whether this is a public key as a contract names it."""
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def _public_key(text: str) -> str:
    if not is_key(text):
        raise ValueError("give a public key as 64 small hexadecimal digits")
    return text


PublicKey = Annotated[str, AfterValidator(_public_key)]
Amount = Annotated[int, Field(ge=0, le=MOST)]
"""Money in micro-units."""


def canonical(document: Any) -> str:
    """A document as canonical JSON (RFC 8785); whole numbers lie within 2^53."""
    return rfc8785.dumps(document).decode()


def parse(text: str | bytes) -> Any:
    """The document of a canonical JSON text."""
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


class Document(BaseModel):
    """An immutable document: exactly its fields, each of exactly its type; else ``BadInput``."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as problem:
            first = problem.errors()[0]
            field = ".".join(map(str, first["loc"]))
            remedy = first["msg"].removeprefix("Value error, ")
            remedy = re.sub("^(Input|String) should", "it should", remedy)
            raise BadInput(field, first["input"], f"{remedy[0].lower()}{remedy[1:]}.") from None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON; what is infinite is None."""
        return self.model_dump()

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The document of what ``to_dict`` gave; its signatures are not checked."""
        kind, fields = cls.__name__.lower(), set(cls.model_fields)
        if not isinstance(values, dict) or set(values) != fields:
            odd = sorted(map(str, fields ^ set(values))) if isinstance(values, dict) else []
            shown = ", ".join(odd) or type(values).__name__
            raise BadInput(kind, shown, f"give exactly the keys of a {kind}.")
        return cls(**values)


def _whole(digits: str) -> float:
    """A number without a point: exact within 2^53, a float beyond, as for every other reader."""
    number = float(digits)
    return int(digits) if abs(number) < 2**53 else number


_decode = json.JSONDecoder(parse_int=_whole).decode
