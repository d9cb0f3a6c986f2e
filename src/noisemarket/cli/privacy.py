"""``noisemarket privacy``: what noise costs in privacy, and which noise an epsilon takes."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from noisemarket.cli.app import PrivacyOptions
from noisemarket.cli.common import show
from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS, Protection
from noisemarket.formats import finite
from noisemarket.privacy.zcdp import (
    MOST,
    Neighbours,
    gaussian_epsilon,
    gaussian_rho,
    sigma_for_epsilon,
    zcdp_epsilon,
    zcdp_epsilon_classic,
)

SIGMAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""The rows of the table, besides those that were requested."""

Row = dict[str, float | None]


def run(asked: PrivacyOptions) -> None:
    """Answer, as a table or as JSON."""
    document = privacy_answer(asked)
    show(asked.json, document, *_shown(document))


def privacy_answer(asked: PrivacyOptions) -> dict[str, Any]:
    """The answer as plain values; infinity is null."""
    kind = PROTECTIONS.find(asked.protection, "--protection", load=True)
    options, neighbours = _settings(asked, kind), Neighbours.named(asked.neighbours)
    if not asked.clip > 0.0:
        raise BadInput("--clip", asked.clip, "give a positive number.")
    if not 0 <= asked.parameters <= MOST:
        remedy = f"give 0 or the size of the model, up to {MOST:,}."
        raise BadInput("--parameters", asked.parameters, remedy)
    protection, records = kind.from_account(options)
    sensitivity = protection.sensitivity(asked.parameters, records, neighbours)
    if options and not 0.0 < sensitivity < math.inf:
        remedy = f"gives a sensitivity of {sensitivity:g}: change it, it is out of range."
        raise BadInput("--clip", asked.clip, remedy)
    if not 1 <= asked.rounds <= MOST:
        raise BadInput("--rounds", asked.rounds, f"give a number from 1 to {MOST:,}.")
    bounded = math.isfinite(sensitivity)
    requested = None if asked.sigma is None else _row(asked, sensitivity, asked.sigma)
    needed = None
    if asked.epsilon is not None:
        if not bounded:
            remedy = f"{protection.name} guarantees no epsilon: choose sharded or dp_sgd."
            raise BadInput("--epsilon", asked.epsilon, remedy)
        sigma = sigma_for_epsilon(sensitivity, asked.epsilon, asked.delta, asked.rounds)
        needed = _row(asked, sensitivity, sigma)
        if needed["epsilon"] is None:
            remedy = f"needs a sigma of {sigma:g}, too small to compute: give a smaller epsilon."
            raise BadInput("--epsilon", asked.epsilon, remedy)
    guaranteed = bounded and (requested is None or requested["epsilon"] is not None)
    return {
        "protection": asked.protection,
        "neighbours": str(neighbours),
        "protects": protection.protects(neighbours) if guaranteed else None,
        "guaranteed": guaranteed,
        "clip": None,
        **options,
        "parameters": asked.parameters,
        "rounds": asked.rounds,
        "delta": asked.delta,
        "sensitivity": finite(sensitivity),
        "at_sigma": requested,
        "for_epsilon": needed,
        "table": [_row(asked, sensitivity, sigma) for sigma in SIGMAS],
    }


def _settings(asked: PrivacyOptions, kind: type[Protection]) -> dict[str, float]:
    """The settings of this kind of protection, with its defaults; others are refused."""
    settings = dict(kind.account_options)
    for name in ("clip", "shards", "batch", "steps", "learning_rate"):
        value = getattr(asked, name)
        if name in settings and value is not None:
            settings[name] = value
        elif value is not None and name != "clip":
            option = f"--{name.replace('_', '-')}"
            raise BadInput(option, value, f"is not a setting of {asked.protection}.")
    return settings


def _row(asked: PrivacyOptions, sensitivity: float, sigma: float) -> Row:
    rho = gaussian_rho(sensitivity, sigma)
    total = rho * asked.rounds
    return {
        "sigma": sigma,
        "noise_multiplier": finite(sigma / sensitivity),
        "rho_per_round": finite(rho),
        "rho_total": finite(total),
        "epsilon": finite(gaussian_epsilon(total, asked.delta)),
        "epsilon_general": finite(zcdp_epsilon(total, asked.delta)),
        "epsilon_classic": finite(zcdp_epsilon_classic(total, asked.delta)),
    }


def _shown(document: dict[str, Any]) -> list[Table | str]:
    if document["sensitivity"] is None:
        return [
            f"Nothing is guaranteed: under protection {document['protection']}, one record can "
            f"change an upload without bound. Use sharded or dp_sgd."
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
    table = Table(box=None, pad_edge=False)
    for head in ("sigma", "sigma/sens.", "rho a round", "rho", "epsilon", "any zCDP", "classic"):
        table.add_column(head, justify="right")
    extra = [row for row in (requested, needed) if row is not None]
    rows = {row["sigma"]: row for row in [*document["table"], *extra]}
    for _, row in sorted(rows.items()):
        bold = "bold" if row in extra else None
        table.add_row(*("infinite" if x is None else f"{x:.4g}" for x in row.values()), style=bold)
    words = "epsilon: exact for Gaussian noise. any zCDP, classic: bounds for any mechanism."
    return [*out, table, words]
