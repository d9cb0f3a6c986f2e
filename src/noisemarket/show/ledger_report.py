"""Contracts and jobs of a ledger: as plain values, in words, on the screen and in files."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from noisemarket.files import not_written, open_atomic, write_atomic
from noisemarket.formats import cell_of, finite
from noisemarket.ledger import queries
from noisemarket.ledger.contract import Contract
from noisemarket.ledger.entries import DELIVERED, MISSED, REFUSED, SIMULATED
from noisemarket.ledger.money import MOST, UNITS, format_micro, in_words
from noisemarket.ledger.store import Ledger
from noisemarket.owner.folder import owner_folder
from noisemarket.privacy.accountant import TOLERANCE, privacy_sentences
from noisemarket.privacy.zcdp import gaussian_epsilon, zcdp_epsilon
from noisemarket.show.style import table_of

Row = Mapping[str, Any]
Shown = Table | str
_PLAIN: dict[str, Any] = {"box": None, "pad_edge": False}

_STATED = ("saving", "sigma", "protection", "neighbours", "protects", "whole_owner", "simulated")
COLUMNS = (
    *("contract", "job", "owner", "state", "saving", "sigma", "payment_micro", "protection"),
    *("rounds", "delivered", "missed", "refused", "kept", "paid_micro", "weight"),
)


def contract_statement(account: queries.Account) -> dict[str, Any]:
    """Privacy cost and payment of a contract, as plain values; infinity is null."""
    contract = account.contract
    total = math.fsum(each.rho for each in account.rounds)
    cap = account.about.get("privacy_cap")
    return {
        "contract": contract.id,
        "job": contract.job,
        "state": account.state,
        **{name: getattr(contract, name) for name in _STATED},
        "guaranteed": math.isfinite(total + contract.rho_per_round) and not contract.simulated,
        "delta": contract.delta,
        "rho_per_round": finite(contract.rho_per_round),
        "epsilon_per_round": finite(gaussian_epsilon(contract.rho_per_round, contract.delta)),
        "rho_cap": finite(contract.rho_cap),
        "epsilon_agreed": finite(contract.epsilon),
        "rounds": contract.rounds,
        "delivered": account.count(DELIVERED),
        "missed": account.count(MISSED),
        "refused": account.count(REFUSED),
        "rho_total": finite(total),
        "epsilon": finite(gaussian_epsilon(total, contract.delta)),
        "epsilon_general": finite(zcdp_epsilon(total, contract.delta)),
        "payment_micro": contract.payment,
        "paid_micro": account.paid,
        "currency": account.about.get("currency", UNITS),
        "simulated_owner": account.about.get("owners") == SIMULATED,
        "least_sigma": None if cap is None else _least_sigma(contract, cap),
        "kept": account.kept,
        "evidence": account.evidence,
        "each_round": [
            {
                "round": each.round,
                "outcome": each.outcome,
                "rho": finite(each.rho),
                "epsilon": finite(gaussian_epsilon(each.rho, contract.delta)),
                "reason": each.reason,
            }
            for each in account.rounds
        ],
    }


def _least_sigma(contract: Contract, cap: float) -> float | None:
    """The least noise with which all rounds stay within the job's privacy cap."""
    if not cap or math.isinf(contract.rho_per_round):
        return None
    return contract.sigma * math.sqrt(contract.rho_per_round * contract.rounds / cap)


def contract_in_full(account: queries.Account) -> dict[str, Any]:
    """A contract's terms, signatures and outcome, as plain values."""
    statement = contract_statement(account)
    shown = (
        *("contract", "state", "delivered", "missed", "refused", "rho_total", "epsilon"),
        *("currency", "simulated_owner", "least_sigma"),
    )
    return {
        **{name: statement[name] for name in shown},
        "recorded_offer": account.offered_at,
        "recorded_signatures": account.signed_at,
        "recorded_closing": account.closed_at,
        "owner_signature": account.owner_signature,
        "curator_signature": account.curator_signature,
        "kept": account.kept,
        "paid_micro": account.paid,
        "evidence": account.evidence,
        "each_round": statement["each_round"],
        "terms": account.contract.to_dict(),
    }


def jobs_shown(jobs: Iterable[queries.JobStanding], contracts: Iterable[Row]) -> list[Shown]:
    """Every job in a sentence, and a table of all contracts."""
    out: list[Shown] = []
    currency = dict[str, str]()
    for job in jobs:
        currency[job.job] = job.currency
        state = "settled" if job.settled else "open"
        limit = ", no budget" if job.budget == MOST else f" of {format_micro(job.budget)}"
        out += [
            f"Job {job.job}: {state}, {job.contracts} contracts ({job.signed} signed, "
            f"{job.broken} broken), {in_words(job.paid, job.currency)} paid{limit}"
            f"{', simulated owners' if job.simulated_owners else ''}.",
            f"Curator's key: {job.curator_key}",
        ]
    named = set(currency.values())
    unit = f", {named.pop()}" if len(named) == 1 else ""
    heads = ("sigma", "weight", "saving", f"payment{unit}", "rounds", f"paid{unit}")
    several = len(currency) > 1
    words = ("contract", *(["job"] if several else []), "owner", "state")
    table = table_of(None, words, *heads, **_PLAIN)
    for row in contracts:
        paid, weight = row["paid_micro"], row["weight"]
        table.add_row(
            *(row["contract"][:12], *([Text(row["job"][:12])] if several else [])),
            *(Text(row["owner"]), row["state"], f"{row['sigma']:g}"),
            "-" if weight is None else f"{100 * weight:.2f} %",
            *(f"{row['saving']:g}", format_micro(row["payment_micro"])),
            f"{row['delivered']}/{row['rounds']}",
            "-" if paid is None else format_micro(paid),
        )
    return [*out, table]


def contract_terms(document: Row) -> dict[str, dict[str, str]]:
    """What ``contract_in_full`` says was agreed, and how it ended: names and values in words."""
    outcome = {k: v for k, v in document.items() if k not in ("terms", "each_round")}
    out: dict[str, dict[str, str]] = {"Agreed": {}, "Outcome": {}}
    for shown, facts in zip(out.values(), (document["terms"], outcome), strict=True):
        for name, value in facts.items():
            if value is None or value == {}:
                continue
            words = _NOISE if name == "simulated" else name.removesuffix("_micro").replace("_", " ")
            money = name in ("payment", "paid_micro")
            shown[words] = in_words(value, document["currency"]) if money else _said(value)
    return out


_NOISE = "simulated noise"
"""What ``simulated`` is called beside a simulated owner."""


def _said(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case dict():
            known = ((k.replace("_", " "), v) for k, v in value.items() if v is not None)
            return ", ".join(f"{name} {_said(one)}" for name, one in known)
    return json.dumps(value, ensure_ascii=False)


def contract_shown(document: Row) -> list[Shown]:
    """One contract: its terms, its outcome, and every round."""
    out: list[Shown] = []
    for title, facts in contract_terms(document).items():
        table = Table(show_header=False, **_PLAIN)
        for name, text in facts.items():
            table.add_row(name, Text(text))
        out += [title, table]
    return out + _rounds_shown(document["each_round"])


def owner_statement(owner: str, accounts: Sequence[queries.Account]) -> dict[str, Any]:
    """What an owner sold, what it cost, and what it was paid, as plain values."""
    return {
        "owner": owner,
        "contracts": [contract_statement(account) for account in accounts],
        "paid_micro": sum(account.paid or 0 for account in accounts),
        "totals": statement_totals(accounts),
    }


def statement_shown(document: Row, *, rounds: bool = False) -> list[Shown]:
    """An owner's contracts: noise sold, privacy cost, and payment; every round if asked for."""
    contracts, out = document["contracts"], list[Shown]([f"Owner {document['owner']}"])
    for contract in contracts:
        out += ["", *statement_sentences(contract)]
        out += _rounds_shown(contract["each_round"]) if rounds else []
    if len(contracts) > 1 and len({contract["currency"] for contract in contracts}) == 1:
        total = in_words(document["paid_micro"], contracts[0]["currency"])
        out += ["", f"Paid in all: {total}."]
    return out + (_totals_shown(document) if len(contracts) > 1 else [])


def _totals_shown(document: Row) -> list[Shown]:
    out = list[Shown]()
    for total in document["totals"]:
        shown = ["infinite" if total[name] is None else f"{total[name]:.4g}" for name in _SUMS]
        out.append(
            f"All {total['contracts']} contracts together cost rho {shown[0]}, epsilon "
            f"{shown[1]} at delta {total['delta']:g} (neighbours: {total['neighbours']})."
        )
    return out


_PAGE = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Statement for {owner}</title></head>
<body><pre style="white-space: pre-wrap">{text}</pre></body>
</html>
"""


_SUMS = ("rho", "epsilon")


def statement_totals(accounts: Iterable[queries.Account]) -> list[dict[str, Any]]:
    """What all contracts of an owner cost together, for each relation of neighbours and delta: of
    records that were in all of the jobs."""
    spent: dict[tuple[str, float], list[float]] = {}
    for account in accounts:
        terms = account.contract.neighbours, account.contract.delta
        rho = math.fsum(each.rho for each in account.rounds)
        spent.setdefault(terms, []).append(rho)
    return [
        {
            "neighbours": neighbours,
            "delta": delta,
            "contracts": len(each),
            "rho": finite(math.fsum(each)),
            "epsilon": finite(gaussian_epsilon(math.fsum(each), delta)),
        }
        for (neighbours, delta), each in spent.items()
    ]


def _rounds_shown(rounds: Sequence[Row]) -> list[Shown]:
    table = table_of(None, (), "round", "rho", "epsilon", **_PLAIN)
    table.add_column("outcome")
    table.add_column("reason")
    for each in rounds:
        numbers = (each["rho"], each["epsilon"])
        shown = ["infinite" if value is None else f"{value:.4g}" for value in numbers]
        table.add_row(str(each["round"]), *shown, each["outcome"], Text(each["reason"] or ""))
    return [table] if rounds else []


def statement_sentences(contract: Row) -> list[str]:
    """What ``contract_statement`` says of a contract, in words."""
    kept = {True: "kept", False: "broken", None: "not judged yet"}[contract["kept"]]
    paid, currency = contract["paid_micro"], contract["currency"]
    lines = [
        f"Contract {contract['contract'][:12]} of job {contract['job']}: {contract['state']}.",
        f"Sold: {contract['saving']:g} of its noise; it added sigma {contract['sigma']:g} "
        f"({contract['protection']}).",
    ]
    if contract["simulated_owner"]:
        lines.append("Simulated owner: its records were dealt out to it from shared data.")
    if (least := contract["least_sigma"]) is not None:
        unsold = "what needs less was not sold"
        if least > contract["sigma"] * (1.0 + TOLERANCE):
            unsold = "nothing was sold, and rounds beyond the cap are missed"
        lines.append(
            f"The job's privacy cap allows noise of at least {least:.3g} in all rounds: {unsold}."
        )
    lines += [
        *privacy_sentences(contract),
        f"Rounds: {contract['delivered']} of {contract['rounds']} delivered, "
        f"{contract['missed']} missed, {contract['refused']} refused.",
        f"The contract is {kept}. Agreed: {in_words(contract['payment_micro'], currency)}; paid: "
        f"{'nothing yet' if paid is None else in_words(paid, currency)}.",
    ]
    if contract["kept"] is False and contract["evidence"]:
        lines.append(f"Evidence: {_said(contract['evidence'])}.")
    return lines


def write_contracts(ledger: Ledger, file: str) -> None:
    """The contracts, one a row: what was agreed, delivered and paid."""
    with _whole(file) as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for standing in queries.contracts(ledger):
            row = queries.row(standing)
            kept = row["kept"]
            row["kept"] = None if kept is None else str(kept).lower()
            writer.writerow({name: cell_of(value) for name, value in row.items()})


def write_chain(ledger: Ledger, file: str) -> None:
    """The chain, as one object: its head and every entry, as recorded."""
    head = ledger.head()
    with _whole(file) as out:
        out.write(f'{{"head": "{head}", "entries": [')
        for number, entry in enumerate(ledger.entries(until=head.count)):
            out.write(",\n" if number else "\n")
            json.dump(asdict(entry), out, ensure_ascii=False)
        out.write("\n]}\n")


def write_statements(ledger: Ledger, folder: Path, form: str, *, rounds: bool) -> list[Path]:
    """A page for each owner of a ledger, as HTML or text, in a folder."""
    owners = dict[str, list[str]]()
    for contract in queries.documents(ledger):
        owners.setdefault(contract.owner, []).append(contract.id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise not_written(folder, problem) from None
    pages, suffix = list[Path](), {"html": "html", "text": "txt"}[form]
    for owner, ids in owners.items():
        document = owner_statement(owner, [queries.account(ledger, one) for one in ids])
        written = io.StringIO()
        out = Console(file=written, width=100, color_system=None)
        for part in statement_shown(document, rounds=rounds):
            out.print(part, markup=False, highlight=False)
        text = written.getvalue()
        if form == "html":
            text = _PAGE.format(owner=escape(owner), text=escape(text))
        pages.append(Path(f"{owner_folder(folder, owner)}.{suffix}"))
        write_atomic(pages[-1], text)
    return pages


@contextmanager
def _whole(file: str) -> Iterator[TextIO]:
    """A text file that appears when it is complete."""
    with open_atomic(Path(file)) as whole:
        out = io.TextIOWrapper(whole, encoding="utf-8", newline="")
        yield out
        out.flush()
        out.detach()
