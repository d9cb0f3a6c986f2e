"""A contract in plain words, for the owner whose it is: what it sold, for what, how safe it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from noisemarket.ledger.money import format_micro


def right_guesses(epsilon: float, delta: float) -> float:
    """How often an even guess about one record is right at most, of who sees all uploads.

    Under (epsilon, delta) both kinds of error obey a + e^epsilon b >= 1 - delta, so that a guess
    between two equally likely cases is right with probability (e^epsilon + delta) / (e^epsilon + 1)
    at most.
    """
    if epsilon > 700.0:
        return 1.0
    odds = math.exp(epsilon)
    return min(1.0, (odds + delta) / (odds + 1.0))


def owner_words(contract: Mapping[str, Any]) -> list[dict[str, str]]:
    """What ``contract_statement`` says of a contract, as questions of its owner and answers."""
    full = contract["saving"] + contract["sigma"]
    agreed, paid = contract["payment_micro"], contract["paid_micro"]
    if contract["saving"] > 0:
        sold = (
            f"You gave up {contract['saving']:.3g} of your noise: you add {contract['sigma']:.3g} "
            f"where you would have added {full:.3g}."
        )
    else:
        sold = f"Nothing: you add all of your noise ({full:.3g})."
    return [
        {"question": "What did I sell?", "answer": sold},
        {"question": "For what?", "answer": _money(contract, agreed, paid)},
        {"question": "Did I deliver?", "answer": _rounds(contract)},
        {"question": "What does that mean for my privacy?", "answer": _privacy(contract)},
    ]


def _money(contract: Mapping[str, Any], agreed: int, paid: int | None) -> str:
    if agreed == 0:
        return "For no money: nothing was sold."
    if paid is None:
        return f"{format_micro(agreed)} is agreed. It is paid when the job is settled."
    if contract["kept"] is False:
        return (
            f"{format_micro(agreed)} was agreed. It is not paid, because the contract was found "
            "broken."
        )
    if paid == agreed:
        return f"{format_micro(agreed)} was agreed, and all of it is paid."
    return f"{format_micro(agreed)} was agreed, {format_micro(paid)} of it is paid."


def _rounds(contract: Mapping[str, Any]) -> str:
    total, came = contract["rounds"], contract["delivered"]
    words = f"{came} of {total} rounds so far"
    if contract["kept"] is not None or came == total:
        words = "Yes, in every round" if came == total else f"In {came} of {total} rounds"
    if contract["refused"]:
        words += f"; {contract['refused']} of your updates were refused"
    if contract["missed"]:
        missed = contract["missed"]
        words += f"; {missed} {'round was' if missed == 1 else 'rounds were'} missed"
    return words + "."


def _privacy(contract: Mapping[str, Any]) -> str:
    if contract["simulated"]:
        return "This was a simulation: the noise came from a known seed and protects nothing."
    epsilon = contract["epsilon_agreed"]
    if epsilon is None or not contract["guaranteed"]:
        return "Nothing is guaranteed: there is no bound on what your updates reveal."
    chance = 100 * right_guesses(epsilon, contract["delta"])
    return (
        f"Hidden: {contract['protects']}. Who guesses which of two equally likely records you hold "
        f"is right half of the time; who has all of your updates, at most {chance:.0f} % of the "
        f"time (epsilon {epsilon:.3g} at delta {contract['delta']:g})."
    )
