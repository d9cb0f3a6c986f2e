"""The audit: attack the protection that really runs, and hold what leaks against the claim."""

from __future__ import annotations

from noisemarket.audit.attack import AuditSettings, Prepared, Target, audit, controls, prepare
from noisemarket.audit.bugs import BUGS, Buggy, bugs_of
from noisemarket.audit.findings import AuditResult, Control, Finding, NoiseCheck

__all__ = [
    "BUGS",
    "AuditResult",
    "AuditSettings",
    "Buggy",
    "Control",
    "Finding",
    "NoiseCheck",
    "Prepared",
    "Target",
    "audit",
    "bugs_of",
    "controls",
    "prepare",
]
