"""The curator's watch over the uploads of a job: is the contracted noise in them?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from noisemarket.federated.engine import Weights
from noisemarket.federated.protections import PROTECTIONS, Protection, Upload
from noisemarket.ledger.contract import Contract
from noisemarket.plain import plain
from noisemarket.privacy.noise_check import Evidence, alarm_rate, check_pool


class UploadInspector:
    """Judges every upload, alone and pooled with the owner's rounds before.

    It works on what the curator has: contracts and uploads. What it finds goes to ``report``, and
    ``state`` is plain JSON, so that a job that was killed goes on watching where it stood. Without
    a ``protection``, it is the one that each contract names.
    """

    def __init__(
        self,
        contracts: Mapping[int, Contract],
        false_alarm: float,
        rounds: int,
        report: Callable[[int, int, str, dict[str, Any]], None] = lambda *finding: None,
        state: dict[str, Any] | None = None,
        protection: Protection | None = None,
    ) -> None:
        self._contracts = contracts
        self._protections = {
            owner: protection
            or PROTECTIONS.find(contract.protection).from_contract(contract.protection_settings)
            for owner, contract in contracts.items()
        }
        self._rate = alarm_rate(false_alarm, max(1, len(contracts)), rounds)
        self._report = report
        pools, accused, tested = (
            {int(owner): kept for owner, kept in (state or {}).get(name, {}).items()}
            for name in ("pools", "accused", "tested")
        )
        self._pools = {owner: _read(fields) for owner, fields in pools.items()}
        self._accused: dict[int, dict[str, Any]] = accused
        self._tested: dict[int, int] = tested

    @property
    def accused(self) -> Mapping[int, dict[str, Any]]:
        """Owners found in breach, with the round, the reason and the evidence."""
        return self._accused

    def state(self) -> dict[str, Any]:
        """All that is to be kept between rounds."""
        return {
            "pools": {str(owner): plain(asdict(pool)) for owner, pool in self._pools.items()},
            "accused": {str(owner): finding for owner, finding in self._accused.items()},
            "tested": {str(owner): number for owner, number in self._tested.items()},
        }

    def present(self, round_number: int) -> list[int]:
        """Who takes part: all whose contract was not found broken."""
        return [owner for owner in self._contracts if owner not in self._accused]

    def inspect(
        self, round_number: int, weights: Weights, uploads: Mapping[int, Upload]
    ) -> dict[int, str]:
        """Whom to refuse in this round, and why. Of what can be used: the screen has seen it."""
        refused: dict[int, str] = {}
        longest = self._longest(uploads)
        for owner, upload in sorted(uploads.items()):
            self._tested[owner] = self._tested.get(owner, 0) + 1
            found = self._judge(owner, upload, longest[self._protections[owner].name])
            if found is not None:
                what, evidence = found
                refused[owner] = what
                finding = {"round": round_number, "reason": what, "evidence": evidence}
                self._accused[owner] = finding
                self._report(owner, round_number, what, evidence)
        return refused

    def evidence(self, owner: int) -> dict[str, Any]:
        """What the finding about an owner's whole contract rests on."""
        if owner in self._accused:
            return dict(self._accused[owner])
        if owner not in self._tested:
            return {"checked": False}
        seen = {"checked": True, "rounds_checked": self._tested[owner]}
        if (pool := self._pools.get(owner)) is None:
            return seen
        return seen | plain({"noise_ratio": pool.noise_ratio, "z_score": pool.z_score})

    def _longest(self, uploads: Mapping[int, Upload]) -> dict[str, float]:
        """How long an update may be under each protection, judged by all uploads of the round."""
        groups: dict[str, dict[int, Upload]] = {}
        for owner, upload in uploads.items():
            groups.setdefault(self._protections[owner].name, {})[owner] = upload
        sigma = {owner: contract.sigma for owner, contract in self._contracts.items()}
        return {
            name: self._protections[next(iter(group))].usual_length(group, sigma)
            for name, group in groups.items()
        }

    def _judge(
        self, owner: int, upload: Upload, longest: float
    ) -> tuple[str, dict[str, Any]] | None:
        contract, protection = self._contracts[owner], self._protections[owner]
        stated = contract.protection_settings
        seen = protection.check_upload(upload, contract.sigma, self._rate, stated, longest)
        if seen.verdict != "as contracted":
            return protection.explain(seen), _shown(seen)
        if seen.method in ("clip", "reach"):
            return None
        before = self._pools.get(owner)
        pool = check_pool([seen] if before is None else [before, seen], self._rate)
        self._pools[owner] = pool
        if pool.verdict != "as contracted":
            return f"{protection.explain(pool)} over the rounds so far", _shown(pool)
        return None


def _shown(evidence: Evidence) -> dict[str, Any]:
    return plain({**asdict(evidence), "noise_ratio": evidence.noise_ratio})


def _read(fields: Mapping[str, Any]) -> Evidence:
    """Evidence as ``plain`` wrote it. Of evidence for an owner, only what has no limit is None."""
    values: dict[str, Any] = {n: math.inf if v is None else v for n, v in fields.items()}
    return Evidence(**values)
