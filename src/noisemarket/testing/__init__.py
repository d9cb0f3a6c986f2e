"""What every part must hold, as suites for pytest: run them on a part of your own.

One module a kind: ``mechanism_suite``, ``rule_suite``, ``protection_suite``, ``weighting_suite``,
``engine_suite``. Each begins with the lines that a test module needs. They need pytest (the extra
``dev``); those of protections and engines need torch, too (the extra ``cnn``).
"""

from __future__ import annotations

from noisemarket.errors import MissingExtra

try:
    import pytest
except ImportError:
    raise MissingExtra("noisemarket.testing", "testing") from None

for _kind in ("engine", "mechanism", "protection", "rule", "weighting"):
    pytest.register_assert_rewrite(f"{__name__}.{_kind}_suite")
