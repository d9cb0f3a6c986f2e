"""What the rounds of a job come to: on the ledger, and for each contract."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from noisemarket.federated.rounds import RoundResult
from noisemarket.ledger import entries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.settlement import Verdict
from noisemarket.market.inspection import UploadInspector
from noisemarket.market.noise_watch import SAME_NOISE
from noisemarket.privacy.accountant import Accountant
from noisemarket.privacy.statement import OwnerId

Refusals = Iterable[tuple[int, str]]
"""Owners whose uploads did not count in a round, and why."""


def round_entries(
    contracts: Mapping[int, Contract], accountant: Accountant, results: Sequence[RoundResult]
) -> Iterator[list[entries.NewEntry]]:
    """Round by round, what came, what did not, what was refused, and what each of these cost.

    A round that had to be made again with other noise has cost more than once.
    """
    charged: dict[tuple[OwnerId, int], list[float]] = {}
    for charge in accountant.charges:
        charged.setdefault((charge.owner, charge.round), []).append(charge.rho)
    for result in results:
        number = result.number
        costs = {owner: math.fsum(charged.get((owner, number), ())) for owner in contracts}
        yield entries_of_round(contracts, number, result.delivered, result.refused, costs)


def entries_of_round(
    contracts: Mapping[int, Contract],
    number: int,
    delivered: Collection[int],
    refused: Refusals,
    costs: Mapping[int, float],
) -> list[entries.NewEntry]:
    """A line for every contract; ``costs`` is what the round cost the owners that paid for it."""
    why, came = dict(refused), set(delivered)
    lines = []
    for owner, contract in contracts.items():
        rho = costs.get(owner, 0.0)
        if owner in came:
            lines.append(entries.delivered(contract, number, rho))
        elif why.get(owner) == "missing":
            lines.append(entries.missed(contract, number, "no upload came", rho))
        elif owner in why:
            lines.append(entries.refused(contract, number, why[owner], rho))
        else:
            lines.append(entries.missed(contract, number, "took no part", rho))
    return lines


def verdicts(
    contracts: Mapping[int, Contract],
    rounds: Iterable[tuple[Collection[int], Refusals]],
    watch: UploadInspector,
) -> list[Verdict]:
    """What is found about each contract, from who delivered and who was refused in each round."""
    came, spoilt = (dict.fromkeys(contracts, 0) for _ in range(2))
    for delivered, refused in rounds:
        for owner in delivered:
            came[owner] += 1
        for owner, reason in refused:
            spoilt[owner] += reason not in ("missing", SAME_NOISE)
    found = []
    for owner, contract in contracts.items():
        kept, evidence = owner not in watch.accused, watch.evidence(owner)
        if kept and 2 * spoilt[owner] > contract.rounds:
            kept, evidence = False, {"reason": f"malformed uploads in {spoilt[owner]} rounds"}
        found.append(Verdict(contract.id, kept, came[owner], evidence))
    return found
