"""A job as a deployment of differential privacy: a record that the curator signs.

Its fields are those of the OpenDP deployments registry, with what NIST SP 800-226 asks for: unit,
neighbours, parameters, trust, mechanism and composition. Every number comes from entries of the
ledger, which the record names as ``number:hash``. So a record can be made again from the ledger,
up to the head that it states: that is how it is verified.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noisemarket.errors import BadInput, BadSignature, LedgerBroken
from noisemarket.files import read_text
from noisemarket.formats import finite, infinite
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract, canonical
from noisemarket.ledger.entries import Entry, Head
from noisemarket.ledger.keys import KeyPair, seal_is_valid
from noisemarket.ledger.store import Ledger
from noisemarket.privacy.zcdp import gaussian_epsilon

FORMAT = "noisemarket deployment 1"
_PURPOSE = "deployment record"
_SIGNATURE = "signature"
_ABSENT = type("_Absent", (), {"__repr__": lambda _: "nothing"})()  # is not null

_MODEL = {
    "model_name": "Distributed",
    "model_name_description": "Each owner is trusted with its own records. It adds the noise "
    "itself, before anything leaves it: the curator of the model is not trusted.",
    "release_type": "One upload of each owner in each round, seen by the curator.",
    "access_type": "Non-interactive",
}
_UNPROTECTED = "Number of records, participation, timing and contracts of an owner."
_ACCOUNTING = {
    "composition": "zCDP: the rhos of all uploads add up, within a job and over jobs. epsilon is "
    "exact for Gaussian noise of that rho, at the delta of the contract. A record of one owner is "
    "in no upload of another: what the job costs is the most that it costs any owner.",
    "post_processing": "The curator averages and publishes uploads; that costs nothing more.",
}


@dataclass
class _Spent:
    """A contract, the cost of its uploads, and the entries that say so."""

    contract: Contract
    named: dict[str, str] = field(default_factory=dict)
    rounds: list[str] = field(default_factory=list)
    rho: list[float] = field(default_factory=list)
    delivered: int = 0

    def add(self, entry: Entry) -> None:
        if entry.kind in entries.ROUND_KINDS:
            self.rounds.append(_name(entry))
            self.rho.append(infinite(entry.content()["rho"]))
            self.delivered += entry.kind == entries.DELIVERED
        else:
            self.named[entry.kind] = _name(entry)

    def row(self, everywhere: Iterable[_Spent]) -> dict[str, Any]:
        """What the owner's records cost in this job, and in all jobs of this ledger."""
        own, rho = self.contract, math.fsum(self.rho)
        return {
            "owner": own.owner,
            "owner_key": own.owner_key,
            "contract": own.id,
            "privacy_unit": "the whole data of the owner" if own.whole_owner else "one record",
            "privacy_unit_description": own.protects,
            "neighbours": own.neighbours,
            "mechanism": {
                "name": "Gaussian noise",
                "protection": own.protection,
                "sigma": own.sigma,
                **own.protection_settings,
            },
            "rho_per_round": finite(own.rho_per_round),
            "rounds_delivered": self.delivered,
            "privacy_parameters": _parameters([rho], own.delta),
            "guaranteed": math.isfinite(rho + own.rho_per_round) and not own.simulated,
            "over_all_jobs": _totals(everywhere),
            "entries": {**self.named, "rounds": self.rounds},
        }


def deployment(
    ledger: Ledger, job: str, owner: str | None = None, head: Head | None = None
) -> dict[str, Any]:
    """The record of a settled job, or of one owner's part of it, as plain values without a
    signature. ``head`` says up to which entry the ledger is read; by default to its end."""
    head = head or ledger.head()
    marks: dict[str, Entry] = {}
    contracts: dict[str, _Spent] = {}
    for entry in ledger.entries(until=head.count):
        if entry.kind == entries.OFFERED:
            contract = Contract.from_dict(entry.content()["contract"])
            contracts[contract.id] = _Spent(contract)
        if entry.contract is not None:
            contracts[entry.contract].add(entry)
        elif entry.job == job and entry.kind in (entries.OPENED, entries.SETTLED):
            marks[entry.kind] = entry
    if entries.SETTLED not in marks:
        raise BadInput("job", job, "is not settled: a record is made at the end.")
    signed = [one for one in contracts.values() if entries.SIGNED in one.named]
    part = [one for one in signed if one.contract.job == job]
    if owner is not None:
        part = [one for one in part if one.contract.owner == owner]
        if not part:
            raise BadInput("owner", owner, "has no contract in this job.")
    keys: dict[str, list[_Spent]] = {}
    for one in signed:
        keys.setdefault(one.contract.owner_key, []).append(one)
    rows = [one.row(keys[one.contract.owner_key]) for one in part]
    opened, settled = marks[entries.OPENED], marks[entries.SETTLED]
    content = opened.content()
    return {
        "format": FORMAT,
        "job": job,
        "owner": owner,
        "ledger_head": str(head),
        "curator_key": content["curator_key"],
        "deployment": {
            "product": {
                "name": f"Federated learning job {job}",
                "data_curators": [content["curator_key"]],
                "data_product_type": "Machine learning model",
                "description": "A model trained on records that stay with their owners.",
                "publication_date": settled.recorded_at[:10],
            },
            "dp_flavor": {
                "name": "Zero-concentrated DP",
                "input_metric": sorted({row["neighbours"] for row in rows}),
                "unprotected_quantities": _UNPROTECTED,
            },
            "privacy_loss": {
                "privacy_unit": sorted({row["privacy_unit"] for row in rows}),
                "privacy_parameters": _parameters(
                    [math.fsum(one.rho) for one in part],
                    max(one.contract.delta for one in part),
                ),
                "guaranteed": all(row["guaranteed"] for row in rows),
            },
            "model": _MODEL,
            "accounting": _ACCOUNTING,
            "implementation": {
                "mechanisms": sorted({one.contract.protection for one in part}),
                "simulated_owners": content["about"].get("owners") == entries.SIMULATED,
                "noise": "from a seed: not private"
                if any(one.contract.simulated for one in part)
                else "from the operating system or a cipher with a secret key",
            },
        },
        "entries": {one.kind: _name(one) for one in (opened, settled)},
        "owners": rows,
    }


def sign(record: Mapping[str, Any], curator: KeyPair) -> dict[str, Any]:
    """The record with the signature of the curator of its job."""
    if curator.public_hex != record["curator_key"]:
        raise BadSignature(f"this key is not that of the curator of job {record['job'][:12]}.")
    return {**record, _SIGNATURE: curator.seal(_PURPOSE, canonical(dict(record)).encode())}


def read_record(file: Path) -> dict[str, Any]:
    """The record in a file."""
    try:
        record = json.loads(read_text("record", file))
        if record["format"] != FORMAT or not isinstance(record[_SIGNATURE], str):
            raise ValueError
        Head.parse(record["ledger_head"])
        canonical(record)
        return dict(record)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadInput("record", str(file), "is not a record of a deployment.") from None


def check_record(ledger: Ledger, record: Mapping[str, Any]) -> None:
    """Check every field and the signature of a record against a verified ledger."""
    head = Head.parse(record["ledger_head"])
    last = next(ledger.entries(after=head.count - 1, until=head.count), None)
    if last is None or last.hash != head.hash:
        raise LedgerBroken(None, f"holds no entry {head.count} as the record says: {head.hash}.")
    found = deployment(ledger, str(record.get("job")), record.get("owner"), head)
    stated = {name: value for name, value in record.items() if name != _SIGNATURE}
    for place, said, true in _differences(stated, found):
        raise LedgerBroken(None, f"has {true!r} for {place}, and the record says {said!r}.")
    text, key = canonical(found).encode(), found["curator_key"]
    if not seal_is_valid(_PURPOSE, text, key, record[_SIGNATURE]):
        raise BadSignature(f"the record of job {found['job'][:12]} is not signed by its curator.")


def _name(entry: Entry) -> str:
    return str(Head(entry.seq, entry.hash))


def _parameters(rho: Iterable[float], delta: float) -> dict[str, Any]:
    most = max(rho)
    epsilon = gaussian_epsilon(most, delta)
    return {"rho": finite(most), "epsilon": finite(epsilon), "delta": delta}


def _totals(contracts: Iterable[_Spent]) -> list[dict[str, Any]]:
    """What contracts of one owner cost together, for each relation of neighbours and delta."""
    spent: dict[tuple[str, float], list[_Spent]] = {}
    for one in contracts:
        spent.setdefault((one.contract.neighbours, one.contract.delta), []).append(one)
    return [
        {
            "neighbours": neighbours,
            "contracts": [
                {
                    "job": one.contract.job,
                    "contract": one.contract.id,
                    "rho": finite(math.fsum(one.rho)),
                    "entry": one.named[entries.OFFERED],
                }
                for one in each
            ],
            **_parameters([math.fsum(rho for one in each for rho in one.rho)], delta),
        }
        for (neighbours, delta), each in spent.items()
    ]


def _differences(said: Any, true: Any, place: str = "") -> Iterable[tuple[str, Any, Any]]:
    """Where two documents differ: the place, and what stands there in each."""
    if isinstance(said, dict) and isinstance(true, dict):
        pairs = [
            (name, said.get(name, _ABSENT), true.get(name, _ABSENT)) for name in {**true, **said}
        ]
    elif isinstance(said, list) and isinstance(true, list) and len(said) == len(true):
        pairs = [(str(number), *pair) for number, pair in enumerate(zip(said, true, strict=True))]
    else:
        if _ABSENT in (said, true) or canonical(said) != canonical(true):
            yield place.removeprefix("."), said, true
        return
    for name, one, other in pairs:
        yield from _differences(one, other, f"{place}.{name}")
