"""Two contracts compared, field by field: an owner signs what it would have written itself."""

from __future__ import annotations

import math
from typing import Any

from noisemarket.ledger.contract import Contract

_CLOSE = 1e-9  # relative: two machines may round the last bit of a cost differently


def differing_fields(contract: Contract, expected: Contract) -> list[str]:
    """The fields in which two contracts differ. Numbers may differ in their last bits."""
    ours, theirs = expected.to_dict(), contract.to_dict()
    return [name for name, value in theirs.items() if not _same(value, ours[name])]


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=_CLOSE)
    return bool(value == other)
