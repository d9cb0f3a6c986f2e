"""Contracts for an app of one's own, whose owners train under ``mod.contract_mod``.

The curator draws a contract up and sends it to the owner, by whatever way. The owner checks and
signs it, which also makes the terms that its mod keeps to, and sends its signature back. The
curator countersigns and puts it on the ledger, where ``strategy.ContractedFedAvg`` finds it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS, Clipped
from noisemarket.flower.api import ArrayRecord
from noisemarket.flower.client import terms_of
from noisemarket.flower.owner import OwnerFolder
from noisemarket.ledger import entries
from noisemarket.ledger.contract import PRO_RATA, Contract, moment, nonce_of
from noisemarket.ledger.keys import CURATOR, OWNER, KeyPair, SignedContract
from noisemarket.ledger.store import Ledger
from noisemarket.market.deals import Deal
from noisemarket.privacy.zcdp import Neighbours, gaussian_epsilon, gaussian_rho


def parameters(arrays: ArrayRecord) -> int:
    """How many numbers of a model are trained and protected: all floating-point ones."""
    values = [array.numpy() for array in arrays.values()]
    return sum(value.size for value in values if value.dtype.kind == "f")


def draw_up(
    job: str,
    deal: Deal,
    owner_key: str,
    curator_key: str,
    *,
    clip: float,
    parameters: int,
    rounds: int,
    delta: float = 1e-5,
    neighbours: str = "replace_one",
    missed_rounds: str = PRO_RATA,
    minimum_share: float = 0.5,
    false_alarm: float = 1e-3,
    valid_hours: float = 24.0,
    simulated: bool = False,
) -> Contract:
    """The curator's offer to one owner. ``deal`` says who, under which noise and for how much."""
    relation = Neighbours.named(neighbours)
    protection = Clipped(clip)
    rho = gaussian_rho(protection.sensitivity(parameters, 1, relation), deal.sigma)
    now = datetime.now(UTC)
    offered, expires = (
        when.isoformat(timespec="milliseconds")
        for when in (now, now + timedelta(hours=valid_hours))
    )
    return Contract(
        job=job,
        owner=deal.owner,
        owner_key=owner_key,
        curator_key=curator_key,
        saving=deal.saving,
        sigma=deal.sigma,
        payment=deal.payment,
        protection=protection.name,
        clip=clip,
        rounds=rounds,
        rho_per_round=rho,
        rho_cap=rounds * rho,
        epsilon=gaussian_epsilon(rounds * rho, delta),
        delta=delta,
        neighbours=neighbours,
        protects=protection.protects(relation),
        whole_owner=protection.whole_owner,
        simulated=simulated,
        missed_rounds=missed_rounds,
        minimum_share=minimum_share,
        false_alarm=false_alarm,
        offered_at=offered,
        expires_at=expires,
        nonce=nonce_of(job, deal.owner),
    )


def sign(
    owner: OwnerFolder,
    contract: Contract,
    parameters: int,
    rho_cap: float,
    *,
    place: int = 0,
    seed: int = 0,
) -> str:
    """The owner's signature under a contract that it has read and likes, in hexadecimal.

    Refused is a contract that costs more privacy than it says, for a model with that many
    ``parameters``, or more than ``rho_cap``, the most zCDP that the owner sells in a job. Signing
    keeps the terms (``OwnerFolder.agree``): from now on ``contract_mod`` trains under them.
    ``place`` and ``seed`` count only where noise is simulated.
    """
    key = KeyPair.obtain(owner.path)
    if (contract.owner, contract.owner_key) != (owner.name, key.public_hex):
        raise BadInput("contract", contract.owner, f"is not one with {owner.name} and its key.")
    protection = PROTECTIONS.find(contract.protection).from_contract(contract.protection_settings)
    if not protection.any_training or contract.whole_owner != protection.whole_owner:
        raise BadInput("contract", contract.protection, "needs protection clipped.")
    if moment("expires_at", contract.expires_at) <= datetime.now(UTC):
        raise BadInput("contract", contract.expires_at, "has expired: ask for a new one.")
    relation = Neighbours.named(contract.neighbours)
    rho = gaussian_rho(protection.sensitivity(parameters, 1, relation), contract.sigma)
    if not math.isclose(contract.rho_per_round, rho, rel_tol=1e-9):
        remedy = f"is not the {rho:g} that a round costs a model of {parameters} parameters."
        raise BadInput("rho_per_round", contract.rho_per_round, remedy)
    if not contract.rho_cap <= min(contract.rounds * rho * (1.0 + 1e-12), rho_cap):
        remedy = f"is more than its rounds cost, or than the {rho_cap:g} that the owner sells."
        raise BadInput("rho_cap", contract.rho_cap, remedy)
    owner.agree(terms_of(contract, {"index": place, "seed": seed, "model": {}}))
    return key.sign(OWNER, contract)


def put_on_record(
    ledger: Ledger, curator: KeyPair, budget: int, accepted: Sequence[tuple[Contract, str]]
) -> None:
    """Countersign a job's contracts, each with its owner's signature, and put them on the ledger.

    ``budget`` is the most that the job may cost, in micro-units. Called again, it records nothing
    twice.
    """
    if not accepted:
        raise BadInput("accepted", 0, "give at least one contract.")
    keys = {contract.owner: contract.owner_key for contract, _ in accepted}
    if len(keys) < len(accepted):
        raise BadInput("accepted", len(accepted), "give one contract for each owner.")
    lines = [entries.opened(accepted[0][0].job, budget, curator.public_hex, keys)]
    for contract, signature in accepted:
        signed = SignedContract(contract, signature, curator.sign(CURATOR, contract))
        lines += [entries.offered(contract), entries.signed(signed)]
    ledger.append(lines)
