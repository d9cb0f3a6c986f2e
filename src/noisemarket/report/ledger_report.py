"""What a ledger says, printed: jobs and contracts, one contract, an owner's statement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from noisemarket.ledger.money import MOST, format_micro
from noisemarket.ledger.queries import JobStanding

Row = Mapping[str, Any]


def print_jobs(out: Console, jobs: Iterable[JobStanding], contracts: Iterable[Row]) -> None:
    """Every job in a sentence, and a table of all contracts."""
    for job in jobs:
        state = "settled" if job.settled else "open"
        limit = ", no budget" if job.budget == MOST else f" of {format_micro(job.budget)}"
        out.print(
            f"Job {job.job}: {state}, {job.contracts} contracts ({job.signed} signed, "
            f"{job.broken} broken), {format_micro(job.paid)} paid{limit}.",
            markup=False,
        )
        out.print(f"Curator's key: {job.curator_key}", markup=False)
    table = Table("contract", "owner", "state", box=None, pad_edge=False)
    for name in ("sigma", "weight", "saving", "payment", "rounds", "paid"):
        table.add_column(name, justify="right")
    for row in contracts:
        paid, weight = row["paid_micro"], row["weight"]
        table.add_row(
            *(row["contract"][:12], Text(row["owner"]), row["state"], f"{row['sigma']:g}"),
            "-" if weight is None else f"{100 * weight:.2f} %",
            *(f"{row['saving']:g}", format_micro(row["payment_micro"])),
            f"{row['delivered']}/{row['rounds']}",
            "-" if paid is None else format_micro(paid),
        )
    out.print(table)


def print_contract(out: Console, document: Row) -> None:
    """One contract: its terms, its outcome, and every round."""
    outcome = {k: v for k, v in document.items() if k not in ("terms", "each_round")}
    for title, facts in (("Agreed", document["terms"]), ("Outcome", outcome)):
        out.print(title, style="bold")
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, value in facts.items():
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if name in ("payment", "paid_micro") and value is not None:
                shown = format_micro(value)
            table.add_row(name.removesuffix("_micro").replace("_", " "), Text(shown))
        out.print(table)
    _print_rounds(out, document["each_round"])


def print_statement(out: Console, document: Row) -> None:
    """An owner's contracts: what it sold, what that cost in privacy, what it was paid."""
    out.print(f"Owner {document['owner']}", style="bold", markup=False)
    for contract in document["contracts"]:
        out.print("")
        for line in statement_sentences(contract):
            out.print(line, markup=False)
        _print_rounds(out, contract["each_round"])
    if len(document["contracts"]) > 1:
        out.print(f"Paid in all: {format_micro(document['paid_micro'])}.")


def statement_sentences(contract: Row) -> list[str]:
    """What ``contract_statement`` says of a contract, in words."""
    kept = {True: "kept", False: "broken", None: "not judged yet"}[contract["kept"]]
    paid = contract["paid_micro"]
    lines = [
        f"Contract {contract['contract'][:12]} of job {contract['job']}: {contract['state']}.",
        f"Sold: {contract['saving']:g} of its noise; it added sigma {contract['sigma']:g} "
        f"({contract['protection']}).",
    ]
    if contract["rho_per_round"] is None or contract["rho_total"] is None:
        lines.append("Nothing is guaranteed: there is no bound on what the uploads reveal.")
    else:
        lines += [
            f"Hidden: {contract['protects']} (neighbours: {contract['neighbours']}).",
            f"A round costs rho {contract['rho_per_round']:.4g}: epsilon "
            f"{contract['epsilon_per_round']:.4g} at delta {contract['delta']:g}.",
            f"The job cost rho {contract['rho_total']:.4g}: epsilon {contract['epsilon']:.4g} at "
            f"delta {contract['delta']:g}; at most {contract['epsilon_general']:.4g} by the bound "
            "for any zCDP mechanism.",
        ]
    if contract["simulated"]:
        lines.append("NOT PRIVATE: the noise came from a fixed seed.")
    lines += [
        f"Rounds: {contract['delivered']} of {contract['rounds']} delivered, "
        f"{contract['missed']} missed, {contract['refused']} refused.",
        f"The contract is {kept}. Agreed: {format_micro(contract['payment_micro'])}; paid: "
        f"{'nothing yet' if paid is None else format_micro(paid)}.",
    ]
    if contract["kept"] is False and contract["evidence"]:
        lines.append(f"Evidence: {json.dumps(contract['evidence'], ensure_ascii=False)}")
    return lines


def _print_rounds(out: Console, rounds: Sequence[Row]) -> None:
    if not rounds:
        return
    table = Table(box=None, pad_edge=False)
    for name in ("round", "rho", "epsilon"):
        table.add_column(name, justify="right")
    for name in ("outcome", "reason"):
        table.add_column(name)
    for each in rounds:
        numbers = (each["rho"], each["epsilon"])
        shown = ["infinite" if value is None else f"{value:.4g}" for value in numbers]
        table.add_row(str(each["round"]), *shown, each["outcome"], Text(each["reason"] or ""))
    out.print(table)
