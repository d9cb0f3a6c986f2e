"""The owner's desk: it plays the game by post, signs what it has agreed to, and keeps the papers.

    folder/
      private.json                what the owner's privacy is worth to it; never leaves
      signing-key.pem             its key; never leaves
      noise.key                   the key of its noise; never leaves
      jobs/<job>/play.npz         its player, put aside, and every reply it has given
      jobs/<job>/offer.json       what it has signed
      jobs/<job>/contract.json    the contract with both signatures
      jobs/<job>/statement.json   what it gave up, and what it was told it is paid

A letter that comes twice, because a reply was lost, gets the reply that it got, bit by bit. Another
letter in its place is refused, so nobody can ask the owner's player what else it might have done.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.flower.owner import OwnerFolder, Refused
from noisemarket.game.sides import OwnerSide
from noisemarket.learning.players import Table, owner_player
from noisemarket.learning.post import OwnerByPost, Reply, Sheet
from noisemarket.ledger.contracts import Contract, moment
from noisemarket.ledger.keys import OWNER, KeyPair, SignedContract
from noisemarket.ledger.money import to_micro
from noisemarket.runfolder import write_whole

if sys.platform != "win32":
    import fcntl

PRIVATE, PLAY, OFFER = "private.json", "play.npz", "offer.json"
CONTRACT, STATEMENT = "contract.json", "statement.json"
SECRETS = ("privacy_cost", "markup", "payment_value", "privacy_weight")
"""What an owner must say about itself, in ``private.json`` or in its node's config."""

_STATE = "state."
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Invitation:
    """What a curator says before the game: all of it public.

    ``work`` is what the contract will say beyond the trade: rounds, protection, what is paid if
    rounds are missed. ``key`` names the pair's stream of random numbers.
    """

    job: str
    curator_key: str
    key: int
    table: Table
    work: Mapping[str, Any]

    def to_json(self) -> str:
        """In one form only, so that two can be compared."""
        values = {**vars(self), "table": self.table.to_dict(), "work": dict(self.work)}
        return json.dumps(values, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Invitation:
        """From what ``to_json`` gave, each part checked."""
        try:
            values: dict[str, Any] = json.loads(text)
            made = cls(**{**values, "table": Table.from_dict(values["table"])})
            job, curator, key, work = (values[n] for n in ("job", "curator_key", "key", "work"))
            sound = isinstance(job, str) and isinstance(work, dict)
            sound = sound and isinstance(curator, str) and len(curator) == 64
            sound = sound and set(curator) <= _HEX and type(key) is int and 0 <= key < 2**64
        except (ValueError, TypeError, KeyError, BadInput):
            sound = False
        if not sound:
            raise Refused("the invitation cannot be read")
        return made


def work_of(contract: Contract) -> dict[str, Any]:
    """What a contract says beyond the trade, in the form of an invitation."""
    settings = {**contract.settings, "clip": contract.clip, "shards": contract.shards}
    settings = {k: v for k, v in settings.items() if v is not None and k != "reach"}
    return {
        "rounds": contract.rounds,
        "protection": contract.protection,
        "settings": settings,
        "neighbours": contract.neighbours,
        "delta": contract.delta,
        "simulated": contract.simulated,
        "missed_rounds": contract.missed_rounds,
        "minimum_share": contract.minimum_share,
        "false_alarm": contract.false_alarm,
    }


def nonce_of(job: str, owner: str) -> str:
    """The nonce of an owner's contract in a job: it has one contract there, and no second."""
    return hashlib.sha256(f"{job}\0{owner}".encode()).hexdigest()[:32]


class Desk:
    """An owner's desk. ``config`` is its node's own; it may name secrets, and the curator's key.

    ``allow-simulated = true`` is for simulations: without it the owner plays no game whose noise
    would come from a seed.
    """

    def __init__(self, owner: OwnerFolder, config: Mapping[str, Any]) -> None:
        self.owner, self._config = owner, config

    @property
    def public_key(self) -> str:
        """What others know the owner by."""
        return KeyPair.obtain(self.owner.path).public_hex

    # The game

    def answer(self, invitation: Invitation, sheet: Sheet) -> Reply:
        """Play a sheet, and keep player and reply before the reply goes out."""
        self._welcome(invitation)
        table = invitation.table
        with self._job(invitation.job) as folder:
            record = _Record.load(folder / PLAY, invitation)
            if (known := record.reply_to(sheet)) is not None:
                return known
            if len(sheet) > table.letter or sheet.first + len(sheet) > table.iterations:
                raise Refused("the letter is longer than was agreed")
            player = self._player(invitation, record)
            try:
                reply = player.answer(sheet)
            except BadInput:
                raise Refused("the letter does not fit the game") from None
            record.then(sheet, reply, player).save(folder / PLAY)
            return reply

    def _welcome(self, invitation: Invitation) -> None:
        expected = self._config.get("curator-key")
        if expected is not None and invitation.curator_key != expected:
            raise Refused("that is not the curator's key")
        if invitation.work.get("simulated") is not False and not self._config.get(
            "allow-simulated", False
        ):
            raise Refused("noise from a seed hides nothing")

    def _player(self, invitation: Invitation, record: _Record) -> OwnerByPost:
        private = self._private()
        try:
            numbers = {name: float(private[name]) for name in SECRETS}
        except (KeyError, TypeError, ValueError):
            needed = ", ".join(SECRETS)
            raise BadInput(PRIVATE, str(self.owner.path), f"give numbers for {needed}.") from None
        side = OwnerSide(
            levels=invitation.table.levels,
            payoff=private.get("payoff", "privacy_loss"),
            payment_value=numbers["payment_value"],
            privacy_weight=numbers["privacy_weight"],
            privacy_cost=np.array([numbers["privacy_cost"]]),
            markup=np.array([numbers["markup"]]),
        )
        seed = int(private.get("seed", secrets.randbits(64)))
        player = owner_player(invitation.table, side, 0, seed, invitation.key)
        if record.state:
            player.restore(record.state)
        return player

    def _private(self) -> dict[str, Any]:
        """The owner's own numbers: of its file, and of its node's config over it."""
        place = self.owner.path / PRIVATE
        values: dict[str, Any] = {}
        if place.exists():
            values = json.loads(place.read_text(encoding="utf-8"))
        names = (*SECRETS, "payoff", "rho_cap")
        given = {name: self._config.get(name.replace("_", "-")) for name in names}
        return values | {name: value for name, value in given.items() if value is not None}

    # The contract

    def sign(self, contract: Contract, plan: Mapping[str, Any], rho: float) -> str:
        """The owner's signature, if this is what it agreed to; the same again if asked again.

        ``rho`` is what a round costs by the owner's own account.
        """
        with self._job(contract.job) as folder:
            place = folder / OFFER
            offer = {"contract": contract.to_dict(), "plan": dict(plan)}
            if place.exists():
                before = json.loads(place.read_text(encoding="utf-8"))
                signature = str(before.pop("signature"))
                if before != json.loads(json.dumps(offer)):
                    raise Refused("another contract was signed in this job")
                return signature
            self._check(contract, rho, folder)
            signature = KeyPair.obtain(self.owner.path).sign(OWNER, contract)
            write_whole(place, json.dumps({**offer, "signature": signature}, indent=2) + "\n")
            return signature

    def _check(self, contract: Contract, rho: float, folder: Path) -> None:
        try:
            record = _Record.read(folder / PLAY)
        except FileNotFoundError:
            raise Refused("nothing was negotiated in this job") from None
        invitation = record.invitation
        if record.played < invitation.table.iterations:
            raise Refused("the negotiation is not over")
        name = self.owner.name
        mine = (name, self.public_key, invitation.curator_key, nonce_of(invitation.job, name))
        if (contract.owner, contract.owner_key, contract.curator_key, contract.nonce) != mine:
            raise Refused("the contract is another owner's, curator's or offer's")
        if work_of(contract) != dict(invitation.work):
            raise Refused("the contract is not on the terms of the invitation")
        if (contract.saving, contract.sigma, contract.payment) not in self._deals(record):
            raise Refused("that is not what was agreed")
        if moment("expires_at", contract.expires_at) <= datetime.now(UTC):
            raise Refused("the offer has expired")
        if not math.isclose(contract.rho_per_round, rho, rel_tol=1e-9):
            raise Refused("a round does not cost what the contract says")
        own = float(self._private().get("rho_cap", math.inf))
        if contract.rho_cap > min(contract.rounds * rho * (1.0 + 1e-12), own):
            raise Refused("the contract allows more than the owner does")

    def _deals(self, record: _Record) -> tuple[tuple[float, float, int], ...]:
        """What the owner agreed to: its deal, or no trade, should the budget not reach to it."""
        levels = record.invitation.table.levels
        player = self._player(record.invitation, record)
        out = []
        for saving, payment in (player.deals.usual(), (0, 0)):
            given = float(levels.savings[saving])
            paid = to_micro(float(levels.payments[payment]), "payment")
            out.append((given, max(0.0, levels.sigma_max - given), paid))
        return tuple(out)

    def keep(self, signed: SignedContract) -> Mapping[str, Any]:
        """Keep the contract that the curator has signed too; gives the plan that came with it."""
        contract = signed.contract
        with self._job(contract.job) as folder:
            try:
                offer = json.loads((folder / OFFER).read_text(encoding="utf-8"))
                record = _Record.read(folder / PLAY)
            except FileNotFoundError:
                raise Refused("nothing was signed in this job") from None
            same = json.loads(json.dumps(contract.to_dict())) == offer["contract"]
            if not same or signed.owner_signature != offer["signature"]:
                raise Refused("that is not the contract that was signed")
            try:
                signed.verify(self.public_key, record.invitation.curator_key)
            except NoisemarketError:
                raise Refused("the curator's signature does not hold") from None
            document = {
                "contract": contract.to_dict(),
                "owner_signature": signed.owner_signature,
                "curator_signature": signed.curator_signature,
            }
            write_whole(folder / CONTRACT, json.dumps(document, indent=2) + "\n")
            plan: Mapping[str, Any] = offer["plan"]
            return plan

    def settle(self, job: str, paid: int | None, head: str) -> None:
        """Keep what the owner gave up by its own journal, and what the curator says it pays."""
        from noisemarket.privacy.journal import read_journal

        with self._job(job) as folder:
            if not (folder / CONTRACT).exists():
                raise Refused("no contract in this job")
            journal = self.owner.journal(job)
            document: dict[str, Any] = {"releases": 0}
            if journal.exists():
                statement = read_journal(journal).statement(self.owner.name)
                document = statement.to_dict() | {"text": statement.text()}
            document |= {"paid": paid, "ledger_head": head}
            write_whole(folder / STATEMENT, json.dumps(document, indent=2) + "\n")

    @contextlib.contextmanager
    def _job(self, job: str) -> Iterator[Path]:
        """The job's folder, for one message at a time."""
        folder = self.owner.job(job)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / "lock").open("w") as lock:
            if sys.platform != "win32":
                fcntl.lockf(lock, fcntl.LOCK_EX)
            yield folder


@dataclass(frozen=True)
class _Record:
    """A player put aside, and all that it has answered so far."""

    invitation: Invitation
    state: dict[str, NDArray[Any]]
    firsts: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    offers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    signed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    @property
    def played(self) -> int:
        """Interactions so far."""
        return len(self.offers)

    @classmethod
    def load(cls, place: Path, invitation: Invitation) -> _Record:
        """What was kept, if it is of this very game; a new record if nothing was."""
        if not place.exists():
            return cls(invitation, {})
        record = cls.read(place)
        if record.invitation.to_json() != invitation.to_json():
            raise Refused("the game of this job is another one")
        return record

    @classmethod
    def read(cls, place: Path) -> _Record:
        """What was kept."""
        with place.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            state = {n.removeprefix(_STATE): kept[n] for n in kept.files if n.startswith(_STATE)}
            return cls(
                Invitation.from_json(str(kept["invitation"])),
                state,
                tuple(int(first) for first in kept["firsts"]),
                tuple(str(digest) for digest in kept["digests"]),
                kept["offers"],
                kept["signed"],
            )

    def reply_to(self, sheet: Sheet) -> Reply | None:
        """What this very sheet was answered before."""
        if sheet.first not in self.firsts:
            return None
        number = self.firsts.index(sheet.first)
        if self.digests[number] != _digest(sheet):
            raise Refused("another letter was answered in its place")
        part = slice(sheet.first, sheet.first + len(sheet))
        return Reply(sheet.first, self.offers[part], self.signed[part])

    def then(self, sheet: Sheet, reply: Reply, player: OwnerByPost) -> _Record:
        """With one more answer."""
        return _Record(
            self.invitation,
            player.state(),
            (*self.firsts, sheet.first),
            (*self.digests, _digest(sheet)),
            np.concatenate([self.offers, reply.offers]),
            np.concatenate([self.signed, reply.signed]),
        )

    def save(self, place: Path) -> None:
        """On disk when this returns, whole or not at all."""
        memory = io.BytesIO()
        arrays: dict[str, Any] = {
            "invitation": np.array(self.invitation.to_json()),
            "firsts": np.array(self.firsts, np.int64),
            "digests": np.array(self.digests),
            "offers": self.offers,
            "signed": self.signed,
        }
        arrays |= {_STATE + name: value for name, value in self.state.items()}
        np.savez(memory, **arrays)
        beside = place.with_suffix(".new")
        with beside.open("wb") as file:
            file.write(memory.getvalue())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)


def _digest(sheet: Sheet) -> str:
    content = np.concatenate([sheet.quotes.astype(np.int64), sheet.signs.astype(np.int64)], axis=1)
    return hashlib.sha256(b"%d,%d," % (sheet.first, len(sheet)) + content.tobytes()).hexdigest()
