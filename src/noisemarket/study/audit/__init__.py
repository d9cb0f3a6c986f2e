"""The audit: attack the protection that really runs, and hold what leaks against the claim."""

from __future__ import annotations

from noisemarket.study.audit.attack import AuditSettings, Target, audit, controls, prepare_audit
from noisemarket.study.audit.bugs import BUGS, Buggy, bugs_of
from noisemarket.study.audit.findings import AuditResult

__all__ = [
    "BUGS",
    "AuditResult",
    "AuditSettings",
    "Buggy",
    "Target",
    "audit",
    "bugs_of",
    "controls",
    "prepare_audit",
]
