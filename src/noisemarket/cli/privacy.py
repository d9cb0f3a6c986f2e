"""``noisemarket privacy``: what noise costs in privacy, and which noise an epsilon takes."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from noisemarket.cli.common import console
from noisemarket.errors import BadInput
from noisemarket.privacy.noise import rounding_reach
from noisemarket.privacy.plain import finite
from noisemarket.privacy.statement import protected
from noisemarket.privacy.zcdp import (
    MOST,
    Neighbours,
    dp_sgd_sensitivity,
    gaussian_epsilon,
    gaussian_rho,
    sharded_sensitivity,
    sigma_for_epsilon,
    zcdp_epsilon,
    zcdp_epsilon_classic,
)

SIGMAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""The rows of the table, besides those asked for."""

PROTECTIONS = ("sharded", "dp_sgd", "paper")

_NOTHING = (
    "Nothing is guaranteed: protection paper adds noise once to a freely trained model, and "
    "nothing bounds what one record can change in it. Use sharded or dp_sgd."
)

Row = dict[str, float | None]


@dataclass(frozen=True)
class Question:
    """What is asked: a protection and its settings, None where an option was not given."""

    sigma: float | None
    epsilon: float | None
    protection: str
    neighbours: str
    rounds: int
    delta: float
    clip: float
    shards: int | None
    batch: int | None
    steps: int | None
    learning_rate: float | None
    parameters: int

    def settings(self) -> dict[str, float]:
        """The settings that this protection has, with their defaults; refuses those of others."""
        of = {
            "shards": ("sharded", self.shards, 64),
            "batch": ("dp_sgd", self.batch, 64),
            "steps": ("dp_sgd", self.steps, 10),
            "learning_rate": ("dp_sgd", self.learning_rate, 0.05),
        }
        if self.protection not in PROTECTIONS:
            raise BadInput(
                "--protection", self.protection, f"choose one of: {', '.join(PROTECTIONS)}."
            )
        for name, (owner, given, _) in of.items():
            if given is not None and owner != self.protection:
                option = f"--{name.replace('_', '-')}"
                raise BadInput(option, given, f"is a setting of {owner}, not {self.protection}.")
        return {
            name: default if given is None else given
            for name, (owner, given, default) in of.items()
            if owner == self.protection
        }

    def sensitivity(self) -> float:
        """What one neighbour can change in a round's upload, against sigma; infinite if unbound."""
        neighbours, settings = Neighbours.named(self.neighbours), self.settings()
        if not self.clip > 0.0:
            raise BadInput("--clip", self.clip, "give a positive number.")
        if not 0 <= self.parameters <= MOST:
            remedy = f"give 0 or the size of the model, up to {MOST:,}."
            raise BadInput("--parameters", self.parameters, remedy)
        if self.protection == "paper":
            return math.inf
        rounding = rounding_reach(self.parameters)
        if self.protection == "sharded":
            shards = int(settings["shards"])
            moved = sharded_sensitivity(self.clip, shards, neighbours, rounding)
        else:
            batch, steps = int(settings["batch"]), int(settings["steps"])
            rate = settings["learning_rate"]
            moved = dp_sgd_sensitivity(self.clip, batch, steps, rate, neighbours, rounding)
        if not 0.0 < moved < math.inf:
            remedy = f"gives a sensitivity of {moved:g}, with which nothing can be reckoned."
            raise BadInput("--clip", self.clip, remedy)
        return moved


def run(question: Question, as_json: bool) -> None:
    """Answer, as a table or as JSON."""
    document = answer(question)
    if as_json:
        print(json.dumps(document, allow_nan=False))
    else:
        _print(document)


def answer(question: Question) -> dict[str, Any]:
    """All that is known, as plain values; what is infinite is null."""
    sensitivity = question.sensitivity()
    if not 1 <= question.rounds <= MOST:
        raise BadInput("--rounds", question.rounds, f"give a number from 1 to {MOST:,}.")
    bounded = math.isfinite(sensitivity)
    asked = None if question.sigma is None else _row(question, sensitivity, question.sigma)
    needed = None
    if question.epsilon is not None:
        if not bounded:
            raise BadInput(
                "--epsilon", question.epsilon, "paper guarantees none: choose sharded or dp_sgd."
            )
        sigma = sigma_for_epsilon(sensitivity, question.epsilon, question.delta, question.rounds)
        needed = _row(question, sensitivity, sigma)
        if needed["epsilon"] is None:
            remedy = f"takes a sigma of {sigma:g}, too small to reckon with: give a smaller one."
            raise BadInput("--epsilon", question.epsilon, remedy)
    guaranteed = bounded and (asked is None or asked["epsilon"] is not None)
    settings = question.settings()
    whole_owner = settings.get("shards") == 1
    neighbours = Neighbours.named(question.neighbours)
    return {
        "protection": question.protection,
        "neighbours": str(neighbours),
        "protects": protected(question.protection, neighbours, whole_owner) if guaranteed else None,
        "guaranteed": guaranteed,
        "clip": question.clip if bounded else None,
        **settings,
        "parameters": question.parameters,
        "rounds": question.rounds,
        "delta": question.delta,
        "sensitivity": finite(sensitivity),
        "at_sigma": asked,
        "for_epsilon": needed,
        "table": [_row(question, sensitivity, sigma) for sigma in SIGMAS],
    }


def _row(question: Question, sensitivity: float, sigma: float) -> Row:
    rho = gaussian_rho(sensitivity, sigma)
    total = rho * question.rounds
    return {
        "sigma": sigma,
        "noise_multiplier": finite(sigma / sensitivity),
        "rho_per_round": finite(rho),
        "rho_total": finite(total),
        "epsilon": finite(gaussian_epsilon(total, question.delta)),
        "epsilon_general": finite(zcdp_epsilon(total, question.delta)),
        "epsilon_classic": finite(zcdp_epsilon_classic(total, question.delta)),
    }


def _print(document: dict[str, Any]) -> None:
    out = console()
    if document["protection"] == "paper":
        out.print(_NOTHING)
        return
    asked, needed = document["at_sigma"], document["for_epsilon"]
    if document["protects"] is not None:
        out.print(f"Hidden: {document['protects']} (neighbours: {document['neighbours']}).")
    out.print(
        f"Sensitivity {document['sensitivity']:.6g} a round, rounds: {document['rounds']}, "
        f"delta {document['delta']:g}."
    )
    if asked is not None and asked["epsilon"] is None:
        noise = "no" if asked["sigma"] == 0.0 else "too little"
        out.print(f"Sigma {asked['sigma']:g}: {noise} noise, and nothing is guaranteed.")
    elif asked is not None:
        out.print(
            f"Sigma {asked['sigma']:g} costs rho {asked['rho_per_round']:.6g} a round, "
            f"{asked['rho_total']:.6g} in all: epsilon {asked['epsilon']:.4f}."
        )
    if needed is not None:
        out.print(f"Epsilon {needed['epsilon']:.6g} takes sigma {needed['sigma']:.6g}.")
    table = Table(box=None, pad_edge=False)
    for head in ("sigma", "sigma/sens.", "rho a round", "rho", "epsilon", "any zCDP", "classic"):
        table.add_column(head, justify="right")
    extra = [row for row in (asked, needed) if row is not None]
    rows = {row["sigma"]: row for row in [*document["table"], *extra]}
    for _, row in sorted(rows.items()):
        bold = "bold" if row in extra else None
        table.add_row(*("infinite" if x is None else f"{x:.4g}" for x in row.values()), style=bold)
    out.print(table)
    out.print("epsilon: exact for Gaussian noise. any zCDP, classic: bounds for any mechanism.")
