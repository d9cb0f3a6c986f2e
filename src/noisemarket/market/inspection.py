"""The curator's watch over uploads: is the contracted noise in them?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS, Protection, Upload
from noisemarket.formats import plain
from noisemarket.ledger.contract import Contract
from noisemarket.market.noise_watch import REMEDY, SHARES, NoiseWatch
from noisemarket.privacy.noise_check import Evidence, UploadFinding, alarm_rate, check_pool

Arrays = Mapping[str, NDArray[Any]]


class UploadInspector:
    """Judges every upload, alone and with the owner's rounds before, and beside all others.

    It works on what the curator has: contracts and uploads. What it finds goes to ``report``.
    ``state`` is plain JSON and ``arrays`` are what is kept of the uploads, so that a job that was
    killed goes on watching where it stood. ``dimension`` is the size of an upload. Without a
    ``protection``, it is the one that each contract names.
    """

    def __init__(
        self,
        contracts: Mapping[int, Contract],
        false_alarm: float,
        rounds: int,
        dimension: int,
        report: Callable[[int, int, str, dict[str, Any]], None] = lambda *finding: None,
        state: dict[str, Any] | None = None,
        protection: Protection | None = None,
        arrays: Arrays | None = None,
    ) -> None:
        self._contracts = contracts
        self._protections = {
            owner: protection
            or PROTECTIONS.find(contract.protection).from_contract(contract.protection_settings)
            for owner, contract in contracts.items()
        }
        owners = max(1, len(contracts))
        self._rate = alarm_rate(SHARES["length"] * false_alarm, owners, rounds)
        self._report = report
        try:
            pools, accused, tested = (
                {int(owner): kept for owner, kept in (state or {}).get(name, {}).items()}
                for name in ("pools", "accused", "tested")
            )
            self._pools = {owner: _read(fields) for owner, fields in pools.items()}
            self._accused: dict[int, dict[str, Any]] = {n: dict(f) for n, f in accused.items()}
            self._tested: dict[int, int] = {owner: int(n) for owner, n in tested.items()}
        except (TypeError, ValueError, AttributeError):
            raise BadInput("checkpoint", "inspection", f"cannot be read: {REMEDY}") from None
        seed = (state or {}).get("sketch_seed")
        if not (isinstance(seed, int) if state else seed is None):
            raise BadInput("checkpoint", "sketch_seed", f"is not a whole number: {REMEDY}")
        if state and not arrays:
            raise BadInput("checkpoint", "kept arrays", f"are missing: {REMEDY}")
        self._owners = sorted(contracts)
        self._rows = {owner: row for row, owner in enumerate(self._owners)}
        sigma = np.array([contracts[owner].sigma for owner in self._owners], dtype=np.float64)
        bounds = np.array([self._reach(owner) for owner in self._owners], dtype=np.float64)
        steps = np.array([self._protections[owner].noise_in_steps for owner in self._owners], bool)
        kept = dict(arrays or {})
        self._noise = NoiseWatch(sigma, bounds, steps, false_alarm, rounds, dimension, seed, kept)

    @property
    def accused(self) -> Mapping[int, dict[str, Any]]:
        """Owners found in breach, with the round, the reason and the evidence."""
        return self._accused

    def state(self) -> dict[str, Any]:
        """All that is to be kept between rounds, but for ``arrays``."""
        return {
            "pools": {str(owner): plain(asdict(pool)) for owner, pool in self._pools.items()},
            "accused": {str(owner): finding for owner, finding in self._accused.items()},
            "tested": {str(owner): number for owner, number in self._tested.items()},
            "sketch_seed": self._noise.seed,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is kept of the uploads between rounds."""
        return self._noise.arrays

    def present(self) -> list[int]:
        """Who takes part: all whose contract was not found broken."""
        return [owner for owner in self._contracts if owner not in self._accused]

    def inspect(self, round_number: int, uploads: Mapping[int, Upload]) -> dict[int, str]:
        """Whom to refuse in this round, and why. Of what can be used: the screen has seen it."""
        refused: dict[int, str] = {}
        longest = self._longest(uploads)
        for owner, upload in sorted(uploads.items()):
            self._tested[owner] = self._tested.get(owner, 0) + 1
            found = self._judge(owner, upload, longest[self._protections[owner].name])
            if found is not None:
                refused[owner] = self._accuse(round_number, owner, *found)
        by_row = {self._rows[owner]: uploads[owner] for owner in uploads if owner not in refused}
        rows = np.array(sorted(by_row), dtype=np.int64)
        accused, spoilt = self._noise.check(round_number, rows, by_row)
        for row, finding in accused.items():
            if (owner := self._owners[row]) not in refused:
                refused[owner] = self._accuse(round_number, owner, finding.reason, _told(finding))
        for row, finding in spoilt.items():
            refused.setdefault(self._owners[row], finding.reason)
        return refused

    def evidence(self, owner: int) -> dict[str, Any]:
        """What the finding about an owner's whole contract rests on."""
        if owner in self._accused:
            return dict(self._accused[owner])
        if owner not in self._tested:
            return {"checked": False}
        seen: dict[str, Any] = {"checked": True, "rounds_checked": self._tested[owner]}
        if (pool := self._pools.get(owner)) is None:
            return seen
        return seen | plain({"noise_ratio": pool.noise_ratio, "z_score": pool.z_score})

    def _accuse(self, round_number: int, owner: int, reason: str, evidence: dict[str, Any]) -> str:
        finding = {"round": round_number, "reason": reason, "evidence": evidence}
        self._accused[owner] = finding
        self._report(owner, round_number, reason, evidence)
        return reason

    def _reach(self, owner: int) -> float:
        """The greatest length of an owner's upload without its noise, by its contract."""
        protection, stated = self._protections[owner], self._contracts[owner].protection_settings
        return float(stated["reach"]) if protection.states_reach else protection.reach(0)

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


def _told(finding: UploadFinding) -> dict[str, Any]:
    """A finding as evidence: numbers of six digits, the same on every machine."""
    values = asdict(finding) | {"verdict": finding.reason}
    del values["reason"]
    for name in ("statistic", "lowest", "highest"):
        if math.isfinite(values[name]):
            values[name] = _digits(values[name])
    return plain(values)


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def _read(fields: Mapping[str, Any]) -> Evidence:
    """Evidence as ``plain`` wrote it. Of evidence for an owner, only what has no limit is None."""
    values: dict[str, Any] = {n: math.inf if v is None else v for n, v in fields.items()}
    return Evidence(**values)
