"""What owners' records have cost over all jobs: as plain values, and on the screen."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from rich.table import Table
from rich.text import Text

from noisemarket.errors import BadInput
from noisemarket.formats import few, finite
from noisemarket.ledger.money import UNITS, in_words
from noisemarket.market.run_folder import RunFolder
from noisemarket.owner.agent import DELTA, OwnerAgent
from noisemarket.owner.folder import CONTRACT, STATEMENT, OwnerFolder
from noisemarket.owner.wallet import FREE, HOLD, RESERVE, SPEND, Reservation, Wallet, last_of
from noisemarket.privacy.zcdp import gaussian_epsilon, gaussian_rho
from noisemarket.show.style import shown, table_of

ACCOUNTS = "accounts.json"
"""In a run folder: what its owners have left after the job."""

SIGMAS = (0.05, 0.1, 0.2, 0.3, 0.6)
_NODE = "node.toml"
_PLAIN: dict[str, Any] = {"box": None, "pad_edge": False}
_number = partial(shown, missing="infinite")
_left = partial(shown, missing="no limit")


def accounts(folder: Path) -> dict[str, Any]:
    """The accounts of an owner's folder, or of all owners' folders in it."""
    if not folder.is_dir():
        known = few([str(one) for one in sorted(folder.parent.glob("owner-*"))])
        remedy = "does not exist: name an owner's folder"
        raise BadInput("FOLDER", str(folder), f"{remedy}, of {known}." if known else f"{remedy}.")
    owners = [owner_account(path) for path in _folders(folder)]
    if not any(one["accounts"] for one in owners):
        raise BadInput("FOLDER", str(folder), "has no wallet: no contract was signed there yet.")
    return {"owners": owners}


def _folders(folder: Path) -> list[Path]:
    if any(folder.glob("wallet-*.jsonl")):
        return [folder]
    return sorted(path for path in folder.glob("owner-*") if path.is_dir()) or [folder]


def owner_account(path: Path) -> dict[str, Any]:
    """All accounts of an owner, one for each set of records, as plain values; infinity is null."""
    config = {}
    if (path / _NODE).is_file():
        config = tomllib.loads((path / _NODE).read_text(encoding="utf-8"))
    name = str(config.get("owner", unquote(path.name.removeprefix("owner-"))))
    files = sorted(path.glob("wallet-*.jsonl"))
    last = {file: line for file in files if (line := last_of(file)) is not None}
    headers = list(last.values())
    if headers:
        name = str(headers[-1].get("owner", name))
    for file, line in last.items():
        if Wallet(path, name, str(line.get("records"))).path != file:
            remedy = "is of another owner or of other records: restore its own."
            raise BadInput("wallet", str(file), remedy)
    folder = OwnerFolder(name, path)
    agent = OwnerAgent(folder, {**config, "allow-unbounded": True})
    cap, budget = agent.limits()
    delta = float(folder.private().get("budget_delta", DELTA))
    paid, money = _paid(path), Counter[str]()
    for amount, currency in paid.values():
        money[currency] += amount
    found = [
        _account(Wallet(path, name, str(line.get("records"))), cap, budget, delta, paid)
        for line in sorted(headers, key=lambda one: str(one.get("at")))
    ]
    known = {row["job"] for one in found for row in one["each_job"]}
    for contract in sorted(path.glob(f"jobs/*/{CONTRACT}")):
        if (job := contract.parent.name) not in known:
            remedy = (
                f"lacks job {job}, whose contract is here: it was put back. Restore the latest."
            )
            raise BadInput("wallet", str(path), remedy)
    total = math.fsum(one["rho"] or math.inf for one in found if one["rho"] != 0.0)
    return {
        "owner": name,
        "folder": str(path),
        "neighbours": str(folder.neighbours()),
        "rho_cap": finite(cap),
        "rho_budget": finite(budget),
        "delta": delta,
        "rho": finite(total),
        "epsilon": finite(gaussian_epsilon(total, delta)),
        "paid_micro": money.total(),
        "money_micro": dict(money),
        "accounts": found,
    }


def _account(
    wallet: Wallet, cap: float, budget: float, delta: float, paid: Mapping[str, tuple[int, str]]
) -> dict[str, Any]:
    """One account, its whole history checked."""
    rows: dict[str, dict[str, Any]] = {}
    terms: list[Any] | None = None
    for line in wallet.history():
        job, did = line["job"], line["did"]
        if did == RESERVE:
            terms = line["open"][job]
            rows[job] = {"job": job, "reserved_at": line["at"], "state": "offered"}
            rows[job] |= {"rounds": 0, "releases": 0, "rho": 0.0, "reserved": line["rho"]}
        elif did == HOLD:
            rows[job]["state"] = "signed"
        elif did == SPEND:
            held = Reservation.from_row(line["open"][job])
            rows[job] |= {"rounds": held.rounds, "releases": held.releases, "rho": held.spent}
        elif did == FREE:
            rows[job]["state"] = "closed"
    account = wallet.account()
    for job, row in rows.items():
        row["reserved"] = 0.0
        if (open_job := account.open.get(job)) is None:
            row["state"] = "closed"
        else:
            row["reserved"] = finite(open_job.taken - open_job.spent)
        row["epsilon"] = finite(gaussian_epsilon(row["rho"], delta))
        row["rho"] = finite(row["rho"])
        row["paid_micro"], row["currency"] = paid.get(job, (None, UNITS))
    left = wallet.left(budget)
    sell = min(left, cap)
    reach = None if terms is None else Reservation.from_row(terms).terms.sensitivity
    return {
        "records": wallet.records,
        "jobs": account.jobs,
        "rho": finite(account.spent),
        "epsilon": finite(gaussian_epsilon(account.spent, delta)),
        "reserved": finite(account.reserved),
        "left": finite(left),
        "could_sell": []
        if reach is None or not math.isfinite(reach) or math.isinf(sell)
        else [
            {"sigma": sigma, "rounds": math.floor(sell / gaussian_rho(reach, sigma) + 1e-9)}
            for sigma in SIGMAS
        ],
        "each_job": list(rows.values()),
    }


def _paid(path: Path) -> dict[str, tuple[int, str]]:
    """What each settled job has brought, and in which currency, by the owner's statements."""
    found = {}
    for file in path.glob(f"jobs/*/{STATEMENT}"):
        said = json.loads(file.read_text(encoding="utf-8"))
        found[file.parent.name] = int(said["paid_micro"] or 0), said.get("currency", UNITS)
    return found


def _money(owner: Mapping[str, Any]) -> str:
    """What all jobs have brought, by currency."""
    amounts = owner["money_micro"] or {UNITS: 0}
    return ", ".join(in_words(amount, currency) for currency, amount in amounts.items())


def accounts_shown(document: Mapping[str, Any]) -> list[Table | str]:
    """The accounts: one owner in full, several in a table."""
    owners = document["owners"]
    return _one_shown(owners[0]) if len(owners) == 1 else [_all_shown(owners)]


def _all_shown(owners: list[dict[str, Any]]) -> Table:
    heads = ("jobs", "rho", "epsilon", "rho reserved", "rho left", "paid")
    table = table_of(None, ("owner",), *heads, **_PLAIN)
    for one in owners:
        last = one["accounts"][-1] if one["accounts"] else {}
        table.add_row(
            Text(one["owner"]), str(sum(each["jobs"] for each in one["accounts"])),
            *(_number(value) for value in (one["rho"], one["epsilon"])),
            _number(last.get("reserved", 0.0)), _left(last.get("left")),
            Text(_money(one)),
        )  # fmt: skip
    return table


def _one_shown(owner: Mapping[str, Any]) -> list[Table | str]:
    delta = owner["delta"]
    out: list[Table | str] = [f"Owner {owner['owner']} (neighbours: {owner['neighbours']})"]
    for number, account in enumerate(owner["accounts"], start=1):
        head = f"Records {account['records'][:16]}: {account['jobs']} job"
        head += f"{'s' * (account['jobs'] != 1)}, rho "
        head += f"{_number(account['rho'])}, epsilon {_number(account['epsilon'])} at delta "
        head += f"{delta:g}; reserved rho {_number(account['reserved'])}, left "
        head += _left(account["left"])
        if owner["rho_budget"] is not None:
            head += f" of {_number(owner['rho_budget'])}"
        head += "."
        if number > 1:
            head = "Other records, so another account within the same budget. " + head
        table = table_of(None, ("job", "state"), "rounds", "rho", "epsilon", "paid", **_PLAIN)
        for row in account["each_job"]:
            paid = row["paid_micro"]
            table.add_row(
                row["job"][:12], row["state"], str(row["rounds"]), _number(row["rho"]),
                _number(row["epsilon"]),
                Text("-" if paid is None else in_words(paid, row["currency"])),
            )  # fmt: skip
        out += ["", head, table]
        if account["could_sell"]:
            offers = (f"{one['rounds']} at sigma {one['sigma']:g}" for one in account["could_sell"])
            out.append(f"What is left covers so many rounds: {', '.join(offers)}.")
    if len(owner["accounts"]) > 1:
        out.append(
            f"A record that is in all of these sets has cost rho {_number(owner['rho'])}, epsilon "
            f"{_number(owner['epsilon'])}."
        )
    return [*out, f"Paid in all: {_money(owner)}."]


def write_accounts(folder: RunFolder, root: Path) -> list[str]:
    """Keep what the owners have left in a run folder; gives a sentence for each thing to know."""
    owners, broken = list[dict[str, Any]](), list[str]()
    for path in _folders(root):
        try:
            owners.append(owner_account(path))
        except BadInput as problem:  # the job is over: the others' accounts are still of use
            broken.append(str(problem))
    folder.write_json(ACCOUNTS, {"owners": {one["owner"]: one for one in owners}})
    changed = [one["owner"] for one in owners if len(one["accounts"]) > 1]
    said = [f"Owners and their wallets: noisemarket owner account {root}"]
    if changed:
        said.append(
            f"{len(changed)} of {len(owners)} owners have other records than in earlier jobs, so "
            f"another account: {few(changed)}. A record in both has cost the sum, so all accounts "
            "of an owner share its budget."
        )
    return said + broken
