"""What an owner keeps: key, preferences, records, contracts, releases, account, statement.

    folder/
      signing-key.pem             its key; never leaves
      private.json                what its privacy is worth to it, and its limits; never leaves
      records.npz                 its data: images, labels; never leaves
      records.csv                 or .parquet, to be read by the description in a contract
      wallet-<digest>.jsonl       what these records have cost over all jobs (``wallet``)
      jobs/<job>/play.npz         its player, and every answer that it has given
      jobs/<job>/sale.json        or what it has answered to prices, bids and menus
      jobs/<job>/offer.json       what it has signed
      jobs/<job>/contract.json    the contract with both signatures
      jobs/<job>/signing-receipt.json     what the ledger held when it had signed, by the curator
      jobs/<job>/settlement-receipt.json  the same when the job was settled, and what it is paid
      jobs/<job>/uploads.json     its uploads, each with the curator's receipt of the last that came
      jobs/<job>/terms.json       what it trains under
      jobs/<job>/release.npz      the last release, noise and all, should it be asked for again
      jobs/<job>/statement.json   what it gave up, and what it was told it is paid

A SuperNode starts a new process for every message and forgets its state when it ends: all that must
last is here. In the run folder of an embedded market, which is of one job, a job's files stand
beside the key.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from logging import getLogger
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.columns import Description, TableFeatures
from noisemarket.federated.table_files import SUFFIXES, count_records, read_table
from noisemarket.files import (
    digest,
    exclusive,
    is_open,
    private_folder,
    save_arrays,
    write_atomic,
    write_json,
)
from noisemarket.formats import finite, infinite
from noisemarket.ledger.contract import Contract, moment
from noisemarket.ledger.entries import SETTLED, SIGNED, Head
from noisemarket.ledger.keys import PRIVATE, KeyPair, SignedContract
from noisemarket.ledger.receipts import Receipt, UploadReceipt, load_receipt, upload_digest
from noisemarket.owner.terms import Plan
from noisemarket.owner.wallet import AHEAD, HELD, Balance, Reservation, Wallet, last_of
from noisemarket.privacy.accountant import TOLERANCE, PrivacyStatement
from noisemarket.privacy.zcdp import Neighbours

OWN_NAMES = frozenset((
    "privacy_cost", "markup", "payment_value", "privacy_weight", "payoff", "changes", "behaviour",
    "key", "seed", "floor", "sigma_max", "rho_cap", "rho_budget", "epsilon_budget", "budget_delta",
    "allow_unbounded", "neighbours", "most_weights", "most_rounds", "most_steps", "most_unsigned",
))  # fmt: skip
"""What ``private.json`` may hold."""
TABLE = "records"
RECORDS, PLAY, SALE = "records.npz", "play.npz", "sale.json"
OFFER, CONTRACT = "offer.json", "contract.json"
TERMS, RELEASE, STATEMENT = "terms.json", "release.npz", "statement.json"
UPLOADS = "uploads.json"
RECEIPTS = {SIGNED: "signing-receipt.json", SETTLED: "settlement-receipt.json"}
"""The files of receipts, by their stage."""

Arrays = Mapping[str, NDArray[Any]]

LOST = 0.1
"""The part of a contract's rounds whose uploads may be lost on the way, besides a first one."""

_JOB = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,79}")
_ARRAY = "array."


class Declined(NoisemarketError):
    """What an owner will not do. The text goes over the wire: it holds nothing private."""


class OwnerFolder:
    """An owner's folder, for the owner alone.

    Args:
        name: the owner's name.
        path: the folder. It is made when something is to be kept.
        one_job: whether a job's files stand beside the key, as in a run folder.

    Example:
        folder = OwnerFolder("north-hospital", Path("market"))
        folder.keep_records(images, labels)
    """

    def __init__(self, name: str, path: Path, *, one_job: bool = False) -> None:
        self.name, self.path, self._one_job = name, path, one_job

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> OwnerFolder:
        """The folder that a node's own config names: ``owner`` and ``owner-folder``."""
        name, path = str(config.get("owner", "")), str(config.get("owner-folder", ""))
        if not name or not path:
            raise Declined("this node's config names no owner and owner-folder")
        folder = Path(path)
        if not folder.is_dir():
            raise Declined("the owner's folder is not there")
        if is_open(folder):
            raise Declined("the owner's folder is open to others: chmod 700")
        return cls(name, folder)

    # For all jobs

    @cached_property
    def key(self) -> KeyPair:
        """The owner's key; made if there is none yet."""
        return KeyPair.obtain(self.path)

    def private(self) -> dict[str, Any]:
        """The owner's preferences and limits. An unknown name is refused: it would limit
        nothing."""
        path = self.path / PRIVATE
        if not path.exists():
            return {}
        try:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError):
            raise BadInput(PRIVATE, str(path), "is not a JSON object: correct it.") from None
        if unknown := found.keys() - OWN_NAMES:
            name = min(unknown)
            close = difflib.get_close_matches(name, OWN_NAMES, n=1)
            remedy = f"did you mean {close[0]}?" if close else "take it out."
            raise BadInput(PRIVATE, str(path), f"has an unknown name, {name}: {remedy}")
        return found

    def keep_private(self, values: Mapping[str, Any], *, renew: bool = False) -> None:
        """Write the owner's preferences down. What is there stays, unless they ``renew`` it."""
        known = self.private()
        if not known or (renew and known | dict(values) != known):
            write_json(self.path / PRIVATE, known | dict(values), private=True)

    def records(
        self, description: Description | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Images that are ready for the model, and labels. Features of a table are kept: every
        message has a process of its own."""
        kept, table = self.path / RECORDS, self._table()
        if table is not None:
            if description is None:
                raise Declined("the contract does not describe a record")
            own = digest(table.read_bytes(), description.text.encode()).hex()[:16]
            kept = self.path / f"records-{own}.npz"
            if not kept.exists():
                self._extract(table, description, kept)
        with np.load(kept, allow_pickle=False) as arrays:
            return arrays["images"], arrays["labels"]

    def _extract(self, table: Path, description: Description, kept: Path) -> None:
        try:
            found = read_table(table, description)
        except NoisemarketError as problem:  # which may quote a record: for the owner's own eyes
            getLogger(__name__).warning("The records cannot be used: %s", problem)
            raise Declined("the owner's records do not fit the description of a record") from None
        images = TableFeatures(description).extract(found.records)
        save_arrays(kept, private=True, images=images, labels=found.labels)

    def _table(self) -> Path | None:
        found = (self.path / f"{TABLE}{suffix}" for suffix in SUFFIXES)
        return next((path for path in found if path.exists()), None)

    def record_count(self) -> int:
        if (table := self._table()) is not None:
            return count_records(table)
        with np.load(self.path / RECORDS, allow_pickle=False) as kept:
            return len(kept["labels"])

    def records_digest(self) -> str:
        """What tells the owner's records from any others; the same for all that are not here."""
        path = self._table() or self.path / RECORDS
        if not path.exists():
            return digest(b"").hex()
        state = path.stat()
        return _records_digest(path, state.st_mtime_ns, state.st_size, state.st_ino)

    def wallets(self) -> list[Path]:
        return sorted(self.path.glob("wallet-*.jsonl"))

    def wallet(self) -> Wallet:
        """The account of the owner's records, as they are now."""
        return Wallet(private_folder(self.path), self.name, self.records_digest())

    def check_wallet(self, wallet: Wallet) -> None:
        """Decline to sign with a wallet that was put back, note and all: the folder has contracts,
        releases and a statement that are not in it."""
        account, settled = wallet.account(), list[tuple[float, Path]]()
        held = self._held(wallet.path) | dict(account.open)
        now, lost = datetime.now(UTC), False
        for job in (self.path / "jobs").glob("*") if not self._one_job else ():
            contract, release = job / CONTRACT, job / RELEASE
            if (job / STATEMENT).exists():
                settled.append(((job / STATEMENT).stat().st_mtime, job / STATEMENT))
            elif job.name not in held:
                if contract.exists():
                    signed = json.loads(contract.read_text(encoding="utf-8"))["contract"]
                    offered = moment("offered_at", signed["offered_at"])
                    lost |= now - HELD + AHEAD < offered <= now  # before, it may have lapsed
            elif release.exists():
                with np.load(release, allow_pickle=False) as kept:
                    lost |= int(kept["round"]) > held[job.name].last_round
        for _, statement in sorted(settled, reverse=True):
            said = json.loads(statement.read_text(encoding="utf-8"))
            if said.get("records") == wallet.records:
                spent = infinite(said["rho_so_far"]) * (1.0 - TOLERANCE)
                lost |= account.jobs < said["jobs_so_far"] or account.spent < spent
                break
        if lost:
            getLogger(__name__).error("%s was put back: restore the latest.", wallet.path)
            raise Declined("the owner's wallet was put back to an earlier state")

    def _held(self, but: Path | None = None) -> dict[str, Reservation]:
        """The open jobs of all records, by their wallets' last lines, ``but`` those of one."""
        lines = [last_of(path) for path in self.wallets() if path != but]
        return dict(row for one in lines if one for row in Balance.of(one).open.items())

    def neighbours(self) -> Neighbours:
        """The relation that the owner counts its privacy in, whatever a contract says."""
        return Neighbours.named(str(self.private().get("neighbours", Neighbours.REPLACE_ONE)))

    def keep_table(self, table: Path) -> None:
        """Copy a CSV or Parquet file with the owner's data."""
        path = private_folder(self.path) / f"{TABLE}{table.suffix.lower()}"
        write_atomic(path, table.read_bytes(), private=True)

    def keep_records(
        self, images: NDArray[np.float32], labels: NDArray[np.int64], **more: Any
    ) -> None:
        """Write the owner's data, ready for the model; ``digest`` names what they were made of."""
        path = private_folder(self.path) / RECORDS
        save_arrays(path, private=True, images=images, labels=labels, **more)

    # For one job

    def job(self, job: str) -> Path:
        """A job's folder, made if need be."""
        path = self._job(job)
        parents = () if self._one_job else (self.path, self.path / "jobs")
        for folder in (*parents, path):
            private_folder(folder)
        return path

    def is_new(self, job: str) -> bool:
        """Whether the owner was asked nothing in this job."""
        return not self._job(job).exists()

    def left_unsigned(self) -> int:
        """In how many jobs of the last month the owner answered, and has trained nothing so far."""
        jobs, month, held = self.path / "jobs", time.time() - 30 * 86_400, self._held()

        def for_nothing(job: Path) -> bool:
            if (job / STATEMENT).exists():
                said = json.loads((job / STATEMENT).read_text(encoding="utf-8"))
                return bool(said["releases"] == 0)
            return job.name not in held or held[job.name].releases == 0

        recent = [one for one in jobs.glob("*") if one.stat().st_mtime > month]
        return sum(map(for_nothing, recent))

    @contextlib.contextmanager
    def locked(self, job: str, *, new: bool = False) -> Iterator[Path]:
        """A job's folder, for one message at a time; only an invitation makes a ``new`` one."""
        if not new and self.is_new(job):
            raise Declined("nothing was negotiated in this job")
        path = self.job(job)
        with exclusive(path, "owner-folder", wait=True):
            yield path

    def terms(self, job: str) -> tuple[Contract, Plan]:
        """What the owner trains under in a job; declined if it agreed to nothing."""
        path = self._job(job) / TERMS
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise Declined("no contract in this job") from None
        contract = Contract.from_dict(kept["contract"])
        if (contract.job, contract.owner) != (job, self.name):
            raise NoisemarketError(f"{path} is of another owner or job.")
        return contract, kept["plan"]

    def agree(self, contract: Contract, plan: Plan) -> None:
        """Keep what the owner trains under. Of a job under way it cannot change."""
        path = self.job(contract.job) / TERMS
        if path.exists() and self.terms(contract.job) != (contract, plan):
            raise BadInput("terms", str(path), "are fixed: a job's contract cannot change.")
        write_json(path, {"contract": contract.to_dict(), "plan": plan}, private=True)

    def contract(self, job: str) -> Contract:
        """The contract of a job that both sides have signed; declined if there is none."""
        try:
            kept = json.loads((self._job(job) / CONTRACT).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise Declined("no contract in this job") from None
        return Contract.from_dict(kept["contract"])

    def has_contract(self, job: str) -> bool:
        """Whether a contract of this job with both signatures is kept."""
        return (self._job(job) / CONTRACT).exists()

    def keep_contract(self, signed: SignedContract) -> None:
        document = {
            "contract": signed.contract.to_dict(),
            "owner_signature": signed.owner_signature,
            "curator_signature": signed.curator_signature,
        }
        write_json(self.job(signed.contract.job) / CONTRACT, document, private=True)

    def receipts(self, job: str) -> list[Receipt]:
        """The receipts of a job, of signing and of settlement, as far as there are any."""
        paths = [self._job(job) / name for name in RECEIPTS.values()]
        return [load_receipt(path) for path in paths if path.exists()]

    def noted(self, job: str, curator_key: str) -> Iterator[tuple[Head, str]]:
        """The heads of the ledger that the owner was shown in a job, by its receipts of this
        curator and by its statement, and which of them says so."""
        for receipt in self.receipts(job):
            if receipt.job == job and receipt.signed_by(curator_key):
                yield receipt.noted, f"the receipt of owner {receipt.owner}"
        with contextlib.suppress(OSError, ValueError, KeyError):
            kept = json.loads((self._job(job) / STATEMENT).read_text(encoding="utf-8"))
            if kept["job"] == job:
                yield Head.parse(kept["ledger_head"]), f"the statement of owner {kept['owner']}"

    def countersign(self, receipt: Receipt, contract: Contract, stage: str) -> Receipt:
        """A receipt of this contract and stage with the owner's signature, kept; or one of another
        state of the ledger that the owner holds: the curator's ledger was put back."""
        if not receipt.is_of(contract, stage):
            raise Declined("the receipt is not of this contract")
        if not receipt.signed_by(contract.curator_key):
            raise Declined("the curator's signature does not hold")
        new = receipt.noted
        for held in self.receipts(contract.job):
            if not held.signed_by(contract.curator_key):
                continue  # somebody else wrote that file
            later = held.noted.count - new.count
            if later > 0 or (later == 0 and held.noted != new):
                return held
        signed = receipt.countersigned(self.key)
        path = self.job(receipt.job) / RECEIPTS[receipt.stage]
        write_json(path, signed.to_dict(), private=True)
        return signed

    def keep_statement(
        self,
        job: str,
        statement: PrivacyStatement | None,
        paid: int | None,
        account: Balance | None = None,
        **more: Any,
    ) -> None:
        """Keep what was given up in a job, what it brought, and what all jobs so far have cost."""
        document: dict[str, Any] = {"owner": self.name, "releases": 0, "job": job}
        if statement is not None:
            document |= statement.to_dict() | {"text": statement.text()}
        if account is not None:
            more |= {"rho_so_far": finite(account.spent), "jobs_so_far": account.jobs}
        write_json(
            self.job(job) / STATEMENT, {**document, "paid_micro": paid, **more}, private=True
        )

    def uploads(self, job: str) -> list[dict[str, Any]]:
        """The uploads of a job that the curator has spoken of, each with its receipt."""
        path = self._job(job) / UPLOADS
        return list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []

    def keep_upload_receipt(
        self, contract: Contract, receipt: UploadReceipt | None, before: int
    ) -> int:
        """Keep what the curator says of the last upload, or decline; gives how many it has denied
        so far."""
        path, book = self.job(contract.job), self.uploads(contract.job)
        if (path / RELEASE).exists() and (path / CONTRACT).exists():
            with np.load(path / RELEASE, allow_pickle=False) as kept:
                sent = int(kept["round"]), upload_digest(kept[f"{_ARRAY}weights"])
            if receipt is None or not receipt.is_of(contract, before):
                raise Declined(f"the curator gives no receipt of the upload of round {sent[0]}")
            last = min(sent[0], before - 1)  # a round again: none came of it
            if receipt.round > last or (receipt.round == sent[0] and receipt.digest != sent[1]):
                raise Declined("the curator's receipt is of another upload")
            if not book or (book[-1]["round"], book[-1]["digest"]) != sent:
                book.append({"round": sent[0], "digest": sent[1], "receipt": receipt.to_dict()})
                write_json(path / UPLOADS, book, private=True)
        return sum(one["round"] != one["receipt"]["round"] for one in book)

    def release(self, job: str, name: str) -> Arrays | None:
        """The last release of a job, if it is the one of this name."""
        path = self._job(job) / RELEASE
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as kept:
            if str(kept["name"]) != name:
                return None
            return {n.removeprefix(_ARRAY): kept[n] for n in kept.files if n.startswith(_ARRAY)}

    def keep_release(self, job: str, name: str, round_number: int, arrays: Arrays) -> None:
        """Keep a release before it goes out, in the place of the last one."""
        named: dict[str, Any] = {_ARRAY + name: array for name, array in arrays.items()}
        named |= {"name": np.array(name), "round": np.array(round_number)}
        save_arrays(self._job(job) / RELEASE, private=True, **named)

    def _job(self, job: str) -> Path:
        if not _JOB.fullmatch(job):
            raise Declined("no such job")
        return self.path if self._one_job else self.path / "jobs" / job


def digest_of(images: NDArray[Any], labels: NDArray[Any]) -> str:
    """What tells records from any others."""
    return digest(np.ascontiguousarray(images).tobytes(), labels.astype(np.int64).tobytes()).hex()


@lru_cache(maxsize=1024)
def _records_digest(path: Path, *_: int) -> str:
    """That of a file, as long as nobody has written it anew."""
    if path.name != RECORDS:
        return digest(path.read_bytes()).hex()
    with np.load(path, allow_pickle=False) as kept:
        if "digest" in kept:
            return str(kept["digest"])
        return digest_of(kept["images"], kept["labels"])


def owner_folder(parent: Path, name: str) -> Path:
    """A folder for an owner, whatever it is called."""
    safe = quote(name, safe="")
    if len(safe) > 100:
        safe = safe[:60] + "-" + hashlib.sha256(name.encode()).hexdigest()[:24]
    return parent / f"owner-{safe}"
