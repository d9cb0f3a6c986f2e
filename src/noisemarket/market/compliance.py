"""The curator's watch over the uploads of a job: is the contracted noise in them?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from noisemarket.federated.engine import Weights
from noisemarket.federated.protections import Upload
from noisemarket.ledger.contracts import Contract
from noisemarket.privacy.compliance import (
    Evidence,
    alarm_rate,
    check_pool,
    check_steps,
    check_upload,
)

FAR = 3.0
"""Where nothing bounds an update (``paper``), uploads so many times longer than the usual one of
their round are refused: a single owner must not move the model at will."""


class Watch:
    """Judges every upload, alone and pooled with the owner's rounds before.

    It works on what the curator has: contracts and uploads. What it finds goes to ``report``, and
    ``state`` is plain JSON, so that a job that was killed goes on watching where it stood.
    """

    def __init__(
        self,
        contracts: Mapping[int, Contract],
        false_alarm: float,
        rounds: int,
        report: Callable[[int, int, str, dict[str, Any]], None] = lambda *finding: None,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._contracts = contracts
        self._rate = alarm_rate(false_alarm, max(1, len(contracts)), rounds)
        self._report = report
        self._pools: dict[int, Evidence] = {}
        self._accused: dict[int, dict[str, Any]] = {}
        for owner, fields in (state or {}).get("pools", {}).items():
            self._pools[int(owner)] = Evidence(**_read(fields))
        for owner, finding in (state or {}).get("accused", {}).items():
            self._accused[int(owner)] = finding

    @property
    def accused(self) -> Mapping[int, dict[str, Any]]:
        """Owners found in breach, with the round, the reason and the evidence."""
        return self._accused

    def state(self) -> dict[str, Any]:
        """All that is to be kept between rounds."""
        return {
            "pools": {str(owner): _plain(asdict(pool)) for owner, pool in self._pools.items()},
            "accused": {str(owner): finding for owner, finding in self._accused.items()},
        }

    def present(self, round_number: int) -> list[int]:
        """Who takes part: all whose contract was not found broken."""
        return [owner for owner in self._contracts if owner not in self._accused]

    def inspect(
        self, round_number: int, weights: Weights, uploads: Mapping[int, Upload | None]
    ) -> dict[int, str]:
        """Whom to refuse in this round, and why."""
        refused: dict[int, str] = {}
        sound = {
            owner: upload
            for owner, upload in sorted(uploads.items())
            if upload is not None and upload.shape == weights.shape and np.isfinite(upload).all()
        }  # what is malformed the screen refuses, and tells why
        far = self._far(sound)
        for owner, upload in sound.items():
            found = far.get(owner) or self._judge(owner, upload)
            if found is not None:
                what, evidence = found
                refused[owner] = what
                finding = {"round": round_number + 1, "reason": what, "evidence": evidence}
                self._accused[owner] = finding
                self._report(owner, round_number + 1, what, evidence)
        return refused

    def evidence(self, owner: int) -> dict[str, Any]:
        """What the finding about an owner's whole contract rests on."""
        if owner in self._accused:
            return dict(self._accused[owner])
        if owner not in self._pools:
            return {"checked": False}
        pool = self._pools[owner]
        return {
            "checked": True,
            "noise_ratio": pool.noise_ratio,
            "z_score": pool.z_score if math.isfinite(pool.z_score) else None,
        }

    def _far(self, uploads: Mapping[int, Upload]) -> dict[int, tuple[str, dict[str, Any]]]:
        """Uploads that nothing else bounds and that are far longer than usual.

        With too few to compare, any length may be.
        """
        free = {owner for owner in uploads if self._contracts[owner].protection == "paper"}
        if not free or len(uploads) < 3:
            return {}
        lengths = {
            owner: float(np.linalg.norm(upload.astype(np.float64)))
            for owner, upload in uploads.items()
        }
        longest = FAR * float(np.median(list(lengths.values())))
        return {
            owner: ("far longer than usual", {"length": lengths[owner], "longest": longest})
            for owner in free
            if lengths[owner] > longest
        }

    def _judge(self, owner: int, upload: Upload) -> tuple[str, dict[str, Any]] | None:
        contract = self._contracts[owner]
        if contract.protection == "paper" and contract.sigma == 0.0:
            return None  # neither noise nor a bound: nothing was promised
        if contract.protection == "dp_sgd":
            reach = float(contract.settings["reach"])
            seen = check_steps(upload, contract.sigma, reach, self._rate)
        else:
            clip = math.inf if contract.protection == "paper" else float(contract.clip or math.inf)
            seen = check_upload(upload, contract.sigma, clip, self._rate)
        if seen.verdict != "as contracted":
            return seen.verdict, _shown(seen)
        if seen.method in ("clip", "reach"):
            return None
        before = self._pools.get(owner)
        pool = check_pool([seen] if before is None else [before, seen], self._rate)
        self._pools[owner] = pool
        if pool.verdict != "as contracted":
            return f"{pool.verdict} over the rounds so far", _shown(pool)
        return None


def _shown(evidence: Evidence) -> dict[str, Any]:
    return _plain(asdict(evidence)) | {"noise_ratio": evidence.noise_ratio}


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in fields.items()
    }


def _read(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: float(value) if value in ("inf", "-inf", "nan") else value
        for name, value in fields.items()
    }
