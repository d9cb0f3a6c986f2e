"""Money as whole micro-units. Nothing here, and nothing in the ledger, is a float."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

from noisemarket.errors import BadInput

MICRO = 1_000_000
"""Micro-units in one unit of money."""

UNITS = "units"
"""What money is called where nobody names a currency."""

MOST = 2**53 - 1
"""The largest amount: what every JSON reader still holds exactly."""

_DIGITS = 1000
_EXACT = Context(prec=_DIGITS + 10, rounding=ROUND_HALF_EVEN)


def to_micro(value: str | int | float | Decimal, field: str = "amount") -> int:
    """An amount in units, as micro-units: the nearest, and the even one of two equally near.

    A float counts as the decimal number that it is printed as, so 0.1 is exactly a tenth.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
            raise ValueError
        exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not exact.is_finite():
            raise ValueError
    except (ValueError, InvalidOperation):
        raise BadInput(field, value, "give a finite amount of money.") from None
    if exact < 0:
        raise BadInput(field, value, "give an amount that is not negative.")
    if exact > MOST // MICRO + 1:
        raise _too_large(field, value)
    if len(exact.as_tuple().digits) > _DIGITS:
        raise BadInput(field, value, f"give at most {_DIGITS} digits.")
    return checked_amount(int(_EXACT.to_integral_value(_EXACT.multiply(exact, MICRO))), field)


def prices(amounts: Iterable[float]) -> list[int]:
    """Payment levels in micro-units."""
    return [to_micro(float(amount), "payment") for amount in amounts]


def checked_amount(amount: object, field: str = "amount") -> int:
    """The amount in micro-units itself, if it is a whole number from 0 to ``MOST``."""
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise BadInput(field, amount, "give a whole number of micro-units.")
    if amount < 0:
        raise BadInput(field, amount, "give an amount that is not negative.")
    if amount > MOST:
        raise _too_large(field, amount)
    return amount


def format_micro(amount: int) -> str:
    """Micro-units as units, exactly and with at least two decimals: ``12.54``."""
    units, rest = divmod(abs(amount), MICRO)
    decimals = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if amount < 0 else ''}{units}.{decimals}"


def in_words(amount: int, currency: str) -> str:
    """An amount with the name of its currency: ``12.54 EUR``."""
    return f"{format_micro(amount)} {currency}"


def is_currency(name: object) -> bool:
    """Whether this can name a currency: a short word on one line, as in a scenario."""
    if not isinstance(name, str) or not 0 < len(name) <= 20:
        return False
    return name.isprintable() and name == name.strip()


def _too_large(field: str, value: object) -> BadInput:
    return BadInput(field, value, f"give at most {format_micro(MOST)}.")
