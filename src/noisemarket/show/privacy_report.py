"""What noise costs in privacy, and which noise an epsilon takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from noisemarket.errors import BadInput
from noisemarket.formats import finite
from noisemarket.privacy.zcdp import (
    Neighbours,
    gaussian_epsilon,
    gaussian_rho,
    sigma_for_epsilon,
    zcdp_epsilon,
    zcdp_epsilon_classic,
)
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import protection_of
from noisemarket.show.style import table_of

SIGMAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""The rows of the table, besides those that were requested."""

Row = dict[str, float | None]


def privacy_answer(
    scenario: Scenario,
    sigma: float | None = None,
    epsilon: float | None = None,
    rho: Sequence[float] = (),
) -> dict[str, Any]:
    """The answer as plain values; infinity is null. ``rho`` is what each of several jobs cost.

    It is for the median owner, without the rounding of the noise: a statement has that, too.
    """
    privacy, rounds = scenario.privacy, scenario.training.rounds
    protection, neighbours = protection_of(scenario), Neighbours.named(privacy.neighbours)
    records = int(np.median(scenario.environment(secrets=False).population.data_size))
    sensitivity = protection.sensitivity(0, records, neighbours)
    if sensitivity == 0.0:
        raise BadInput("privacy.clip", privacy.clip, "is too small to compute with: raise it.")

    def row(sigma: float) -> Row:
        rho = gaussian_rho(sensitivity, sigma)
        total = rho * rounds
        return {
            "sigma": sigma,
            "noise_multiplier": finite(sigma / sensitivity),
            "rho_per_round": finite(rho),
            "rho_total": finite(total),
            "epsilon": finite(gaussian_epsilon(total, privacy.delta)),
            "epsilon_general": finite(zcdp_epsilon(total, privacy.delta)),
            "epsilon_classic": finite(zcdp_epsilon_classic(total, privacy.delta)),
        }

    if wrong := [one for one in rho if not 0.0 <= one < math.inf]:
        raise BadInput("rho", wrong[0], "give a number that is not negative.")
    bounded = math.isfinite(sensitivity)
    requested = None if sigma is None else row(sigma)
    needed = None
    if epsilon is not None:
        if not bounded:
            remedy = f"{protection.name} guarantees no epsilon: choose per_record or sharded."
            raise BadInput("epsilon", epsilon, remedy)
        least = sigma_for_epsilon(sensitivity, epsilon, privacy.delta, rounds)
        needed = row(least)
        if needed["epsilon"] is None:
            remedy = f"needs a sigma of {least:g}, too small to compute: give a smaller epsilon."
            raise BadInput("epsilon", epsilon, remedy)
    guaranteed = bounded and (requested is None or requested["epsilon"] is not None)
    return {
        "protection": protection.name,
        "neighbours": str(neighbours),
        "protects": protection.protects(neighbours, records) if guaranteed else None,
        "guaranteed": guaranteed,
        "settings": protection.settings(),
        "records": records,
        "rounds": rounds,
        "delta": privacy.delta,
        "sensitivity": finite(sensitivity),
        "at_sigma": requested,
        "for_epsilon": needed,
        "for_rho": _converted(rho, privacy.delta) if rho else None,
        "table": [row(sigma) for sigma in SIGMAS],
    }


def _converted(rho: Sequence[float], delta: float) -> Row:
    """What jobs of these costs come to together: zCDP adds up."""
    total = math.fsum(rho)
    return {
        "rho": total,
        "epsilon": finite(gaussian_epsilon(total, delta)),
        "epsilon_general": finite(zcdp_epsilon(total, delta)),
        "epsilon_classic": finite(zcdp_epsilon_classic(total, delta)),
    }


def privacy_shown(document: dict[str, Any]) -> list[Table | str]:
    """The answer in sentences and a table."""
    if (summed := document["for_rho"]) is not None:
        return [
            f"Rho {summed['rho']:.6g} is epsilon {summed['epsilon']:.6g} at delta "
            f"{document['delta']:g}, exactly for Gaussian noise; at most "
            f"{summed['epsilon_general']:.6g} for any zCDP mechanism, "
            f"{summed['epsilon_classic']:.6g} by the textbook bound."
        ]
    if document["sensitivity"] is None:
        return [
            f"Nothing is guaranteed: under protection {document['protection']}, one record can "
            f"change an upload without bound. Use per_record or sharded."
        ]
    requested, needed = document["at_sigma"], document["for_epsilon"]
    out: list[Table | str] = []
    if document["protects"] is not None:
        out.append(f"Hidden: {document['protects']} (neighbours: {document['neighbours']}).")
    out.append(
        f"Sensitivity {document['sensitivity']:.6g} a round, rounds: {document['rounds']}, "
        f"delta {document['delta']:g}."
    )
    if requested is not None and requested["epsilon"] is None:
        noise = "no" if requested["sigma"] == 0.0 else "too little"
        out.append(f"Sigma {requested['sigma']:g}: {noise} noise, and nothing is guaranteed.")
    elif requested is not None:
        out.append(
            f"Sigma {requested['sigma']:g} costs rho {requested['rho_per_round']:.6g} a round, "
            f"{requested['rho_total']:.6g} in all: epsilon {requested['epsilon']:.4f}."
        )
    if needed is not None:
        out.append(f"Epsilon {needed['epsilon']:.6g} needs sigma {needed['sigma']:.6g}.")
    heads = ("sigma", "sigma/sens.", "rho a round", "rho", "epsilon", "any zCDP", "classic")
    table = table_of(None, (), *heads, box=None, pad_edge=False)
    extra = [row for row in (requested, needed) if row is not None]
    rows = {row["sigma"]: row for row in [*document["table"], *extra]}
    for _, row in sorted(rows.items()):
        bold = "bold" if row in extra else None
        table.add_row(*("infinite" if x is None else f"{x:.4g}" for x in row.values()), style=bold)
    words = "epsilon: exact for Gaussian noise. any zCDP, classic: bounds for any mechanism."
    return [*out, table, words]
