"""What the rounds of a job come to on the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from noisemarket.federated.training import RoundResult
from noisemarket.ledger import entries
from noisemarket.ledger.contracts import Contract
from noisemarket.privacy.accountant import Accountant
from noisemarket.privacy.statement import OwnerId


def round_entries(
    contracts: Mapping[int, Contract], accountant: Accountant, results: Sequence[RoundResult]
) -> Iterator[list[entries.NewEntry]]:
    """Round by round, what came, what did not, what was refused, and what each of these cost.

    A round that had to be made again with other noise has cost more than once.
    """
    charged: dict[tuple[OwnerId, int], list[float]] = {}
    for charge in accountant.charges:
        charged.setdefault((charge.owner, charge.round + 1), []).append(charge.rho)
    for result in results:
        came, refused, number = set(result.delivered), dict(result.refused), result.number
        lines = []
        for owner, contract in contracts.items():
            rho = math.fsum(charged.get((owner, number), ()))
            if owner in came:
                lines.append(entries.delivered(contract, number, rho))
            elif refused.get(owner) == "missing":
                lines.append(entries.missed(contract, number, "no upload came", rho))
            elif owner in refused:
                lines.append(entries.refused(contract, number, refused[owner], rho))
            else:
                lines.append(entries.missed(contract, number, "took no part", rho))
        yield lines
