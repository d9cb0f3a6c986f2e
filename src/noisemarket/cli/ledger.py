"""``noisemarket ledger``: what was agreed, delivered and paid. It only reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from noisemarket.cli import common
from noisemarket.cli.options import Json
from noisemarket.errors import BadInput

Where = Annotated[
    str, Argument(metavar="FOLDER", help="Run folder, ledger file, or postgresql:// URL.")
]


def ls(
    where: Where,
    as_json: Json = False,
) -> None:
    """List jobs and contracts."""
    from noisemarket.ledger import queries
    from noisemarket.ledger.store import reading
    from noisemarket.show.ledger_report import jobs_shown

    with reading(where) as ledger:
        jobs = list(queries.jobs(ledger))
        rows = [queries.row(each) for each in queries.contracts(ledger)]
    document = {"jobs": [_money(vars(each)) for each in jobs], "contracts": rows}
    common.show(as_json, document, *jobs_shown(jobs, rows))


def show(
    where: Where,
    contract: Annotated[
        str, Argument(metavar="CONTRACT", help="Id of the contract, or its first characters.")
    ],
    as_json: Json = False,
) -> None:
    """Show one contract in full, and its outcome."""
    from noisemarket.ledger import queries
    from noisemarket.ledger.store import reading
    from noisemarket.show.ledger_report import contract_in_full, contract_shown

    with reading(where) as ledger:
        found = queries.account(ledger, queries.find_contract(ledger, contract))
    document = contract_in_full(found)
    common.show(as_json, document, *contract_shown(document))


def verify(
    where: Where,
    head: Annotated[str | None, Option(help="Head noted earlier: count:hash, or the hash.")] = None,
    curator_key: Annotated[
        list[str] | None,
        Option(
            metavar="HEX", help="Key of a curator, noted earlier; can be repeated, one per curator."
        ),
    ] = None,
    receipt: Annotated[
        str | None, Option(metavar="FILE", help="An owner's receipt; finds what was cut off.")
    ] = None,
    record: Annotated[
        str | None,
        Option("--record", metavar="FILE", help="A deployment record; finds what was changed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check every hash, signature, state and payment; name the first wrong entry.

    Of a run folder, also that its head, receipts and contracts are on this ledger.
    """
    from noisemarket.errors import LedgerBroken
    from noisemarket.ledger import verification
    from noisemarket.ledger.money import in_words
    from noisemarket.ledger.receipts import load_receipt
    from noisemarket.ledger.store import reading
    from noisemarket.market.deployment import check_record, read_record
    from noisemarket.market.folder_check import check_folder

    if head is not None and receipt is not None:
        raise BadInput("--head", head, "give a head or a receipt: a receipt holds a head.")
    held = None if receipt is None else load_receipt(receipt)
    stated = None if record is None else read_record(Path(record))
    with reading(where) as ledger, common.progress("entries") as bar:
        task = bar.add_task("Verifying", total=None)

        def watch(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of)

        keys = curator_key or ()
        try:
            if held is None:
                found = verification.verify(ledger, head, watch, curator_keys=keys)
            else:
                found = verification.verify_receipt(ledger, held, watch, curator_keys=keys)
            agrees = check_folder(ledger, Path(where))
            if stated is not None:
                check_record(ledger, stated)
        except LedgerBroken as problem:
            if not as_json:
                raise
            common.show(True, {"sound": False, "entry": problem.seq, "problem": problem.reason})
            raise typer.Exit(1) from None
    paid = " and ".join(in_words(amount, name) for name, amount in found.money.items())
    said = [
        f"Sound: {found.entries} entries, {_counted(found.jobs, 'job')} ({found.jobs_settled} "
        f"settled), {_counted(found.contracts, 'contract')} ({found.contracts_paid} paid, "
        f"{found.contracts_broken} broken), {paid or 'nothing'} paid in all."
    ]
    if held is not None:
        said.append(f"The receipt holds: entry {held.noted.count} is what {held.owner} was shown.")
    if stated is not None:
        said.append(
            f"The record of job {stated['job'][:12]} holds: every field, and its signature."
        )
    if agrees:
        said.append(f"It agrees with this folder: {agrees}.")
    said.append(f"Head to note elsewhere: {found.head}")
    said += [f"Curator's key to note elsewhere: {key}" for key in found.curator_keys]
    common.show(as_json, {"sound": True, **_money(vars(found)), "head": str(found.head)}, *said)


def export(
    where: Where,
    csv: Annotated[
        str | None,
        Option(metavar="FILE", help="Write the contracts to this CSV file, one per row."),
    ] = None,
    json_file: Annotated[
        str | None, Option("--json", metavar="FILE", help="Write all entries to this JSON file.")
    ] = None,
) -> None:
    """Write the contracts to a CSV file, or all entries to a JSON file."""
    from noisemarket.ledger.store import reading
    from noisemarket.show.ledger_report import write_chain, write_contracts

    if csv is None and json_file is None:
        raise BadInput("export", "nothing", "name a file: --csv FILE or --json FILE.")
    with reading(where) as ledger:
        for file, write in ((csv, write_contracts), (json_file, write_chain)):
            if file is not None:
                write(ledger, file)


def statement(
    where: Where,
    owner: Annotated[str | None, Argument(metavar="[OWNER]", help="Name of the owner.")] = None,
    everyone: Annotated[bool, Option("--all", help="A page for each owner, in --out.")] = False,
    out: Annotated[
        str | None, Option(metavar="DIR", help="Folder for the pages; it is made if need be.")
    ] = None,
    form: Annotated[str, Option("--format", help="Of the pages: html or text.")] = "html",
    rounds: Annotated[bool, Option("--rounds", help="With every round.")] = False,
    as_json: Json = False,
) -> None:
    """Show what an owner sold, what it cost in privacy, and what it was paid."""
    from noisemarket.formats import few
    from noisemarket.ledger import queries
    from noisemarket.ledger.store import reading
    from noisemarket.show.ledger_report import owner_statement, statement_shown, write_statements

    if everyone != (owner is None) or everyone != (out is not None):
        given = owner or "nothing"
        raise BadInput("statement", given, "name one owner, or give --all with --out DIR.")
    if form not in ("html", "text"):
        raise BadInput("--format", form, "choose html or text.")
    with reading(where) as ledger:
        if out is not None:
            pages = write_statements(ledger, Path(out), form, rounds=rounds)
            common.show(as_json, {"pages": [*map(str, pages)]}, f"{len(pages):,} pages in {out}.")
            return
        found = list(queries.documents(ledger))
        ids = [each.id for each in found if each.owner == owner]
        if not ids:
            known = few(sorted({each.owner for each in found})) or "none has any"
            raise BadInput("owner", owner, f"has no contract in this ledger: owners are {known}.")
        accounts = [queries.account(ledger, contract) for contract in ids]
    document = owner_statement(str(owner), accounts)
    common.show(as_json, document, *statement_shown(document, rounds=rounds))


def record(
    folder: Annotated[str, Argument(metavar="RUN", help="Run folder of a settled market.")],
    owner: Annotated[str | None, Option(help="Only this owner's part.")] = None,
    curator_folder: Annotated[
        str | None,
        Option(metavar="DIR", help="Folder with the curator's key, if it is not in RUN."),
    ] = None,
    out: Annotated[
        str | None, Option(metavar="FILE", help="Write it to this file instead of printing it.")
    ] = None,
) -> None:
    """Sign a record of the job as a deployment of differential privacy, in JSON: unit, neighbours,
    rho, epsilon, delta, mechanism and composition, each traced to entries of the ledger."""
    import json

    from noisemarket.files import write_json
    from noisemarket.ledger import verification
    from noisemarket.ledger.keys import KEY_FILE, KeyPair
    from noisemarket.ledger.store import reading
    from noisemarket.market.deployment import deployment, sign
    from noisemarket.market.run_folder import JOB, MarketFolder

    if not (Path(folder) / JOB).is_file():
        raise BadInput("RUN", folder, "is not the run folder of a market.")
    common.writable_file("--out", out)
    market = MarketFolder(Path(folder))
    own = Path(curator_folder or market.curator)
    if not (own / KEY_FILE).exists():
        raise BadInput("--curator-folder", str(own), "holds no key: name the curator's folder.")
    curator = KeyPair.load(own)
    with reading(folder) as ledger:
        verification.verify(ledger)
        document = sign(deployment(ledger, market.manifest().job, owner), curator)
    if out is None:
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        write_json(Path(out), document)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _money(values: dict[str, Any]) -> dict[str, Any]:
    """Amounts with their unit in the name."""
    return {
        f"{name}_micro" if name in ("paid", "budget", "money") else name: value
        for name, value in values.items()
    }
