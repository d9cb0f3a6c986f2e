"""``noisemarket owner``: what an owner computes by itself, from what it has kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from noisemarket.cli.options import Json, epilog, group
from noisemarket.errors import BadInput

if TYPE_CHECKING:
    from noisemarket.owner.folder import OwnerFolder

owner_app = group("What an owner computes by itself, from what it has kept.")

_AGREES = 1e-4  # the curator gives six digits


@owner_app.callback()
def _group() -> None:
    """A group also while it has one command."""


@owner_app.command(
    "standing",
    epilog=epilog("owner standing runs/demo --owner 7", "owner standing my-folder"),
)
def standing(
    folder: Annotated[
        str, Argument(metavar="FOLDER", help="An owner's own folder, or a run folder.")
    ],
    owner: Annotated[
        str | None, Option(help="Name of the owner, which a run folder needs.")
    ] = None,
    job: Annotated[str | None, Option(help="The job; by default the only one.")] = None,
    as_json: Json = False,
) -> None:
    """Compute whether an owner's uploads helped, and compare it with what the curator says."""
    found = _compared(Path(folder), owner, job)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        for line in _told(found):
            print(line)
    raise typer.Exit(1 if found["agrees"] is False else 0)


def _compared(folder: Path, owner: str | None, job: str | None) -> dict[str, Any]:
    """The owner's own figures beside the curator's, as plain values."""
    from noisemarket.owner.folder import STATEMENT, Declined
    from noisemarket.owner.own_standing import own_standing, rounds_sent, sent_in
    from noisemarket.privacy.usefulness_rule import UsefulnessRule

    own, job, uploads, reference = _paths(folder, owner, job)
    try:
        contract = own.contract(job)
        statement = json.loads((own.job(job) / STATEMENT).read_text(encoding="utf-8"))
    except (Declined, OSError, ValueError):
        remedy = "has no contract of a settled job: name an owner's folder, and wait for the end."
        raise BadInput("FOLDER", str(own.path), remedy) from None
    claim = dict(statement.get("usefulness") or {})
    sent = [one for one in rounds_sent(uploads) if sent_in(uploads, one, contract.owner)]
    if not sent:
        remedy = "has nothing that was sent: it is kept where the curator has reference records."
        raise BadInput("FOLDER", str(uploads), remedy)
    counted = claim["rounds"] if claim else sent
    at = own_standing(uploads, reference, contract.owner, contract.sigma, counted)
    found: dict[str, Any] = {
        **{"owner": contract.owner, "job": job, "sent": len(sent), "rounds": at.rounds},
        **{"best": at.best, "against": at.against, "useful": None},
    }
    if contract.usefulness:
        rule = UsefulnessRule.of(contract.usefulness)
        limits = rule.stated(contract.sigma, contract.rounds)
        found |= {name: limits[name] for name in ("threshold", "most_against")}
        found["useful"] = rule.met(at, contract.sigma, contract.rounds)
    pairs = [(found[name], claim[name]) for name in ("best", "against") if name in claim]
    close = all(math.isclose(*pair, rel_tol=_AGREES, abs_tol=_AGREES) for pair in pairs)
    return found | {"curator_says": claim or None, "agrees": close if pairs else None}


def _paths(folder: Path, owner: str | None, job: str | None) -> tuple[OwnerFolder, str, Path, Path]:
    """The owner's folder, the job, and where its uploads and their directions are."""
    from noisemarket.market.market_folder import JOB, MarketFolder
    from noisemarket.owner.folder import OwnerFolder, owner_folder
    from noisemarket.owner.own_standing import REFERENCE, UPLOADS

    run = MarketFolder(folder)
    if (folder / JOB).exists():
        if owner is None:
            raise BadInput("--owner", "none", "name the owner: a run folder has many.")
        own = OwnerFolder(owner, owner_folder(run.owners, owner), one_job=True)
        return own, run.manifest().job, run.owners / UPLOADS, run.curator / REFERENCE
    if not (folder / "jobs").is_dir():
        raise BadInput("FOLDER", str(folder), "is neither an owner's folder nor a run folder.")
    known = sorted(path.name for path in (folder / "jobs").iterdir())
    if job is None and len(known) != 1:
        raise BadInput("--job", "none", f"name one of: {', '.join(known) or 'there is none'}.")
    job = job or known[0]
    if job not in known:
        raise BadInput("--job", job, f"name one of: {', '.join(known)}.")
    own = OwnerFolder(owner or "", folder)
    return own, job, own.job(job) / UPLOADS, own.job(job) / REFERENCE


def _told(found: dict[str, Any]) -> list[str]:
    lines = [
        f"Owner {found['owner']}, by its own uploads: best z {found['best']:.4g}, against "
        f"{found['against']:.4g}, over {found['rounds']} rounds; it sent {found['sent']}."
    ]
    if found["useful"] is not None:
        lines.append(
            f"The contract asks for a best z of {found['threshold']:.4g} at least, and "
            f"{found['most_against']:.4g} against at most: "
            f"{'useful' if found['useful'] else 'not useful'}."
        )
    said = found["curator_says"]
    if said is None:
        return [*lines, "The curator has said nothing about it."]
    verdict = "which is the same" if found["agrees"] else "which is NOT the same"
    figures = f"best z {said['best']:.4g}, against {said['against']:.4g}"
    return [*lines, f"The curator says {figures}: {verdict}."]
