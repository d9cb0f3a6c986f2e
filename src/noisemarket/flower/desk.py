"""The owner's desk: it plays the game by post, signs what it has agreed to, and keeps the papers.

    folder/
      private.json                what the owner's privacy is worth to it; never leaves
      signing-key.pem             its key; never leaves
      jobs/<job>/play.npz         its player, put aside, and every reply it has given
      jobs/<job>/offer.json       what it has signed
      jobs/<job>/contract.json    the contract with both signatures
      jobs/<job>/statement.json   what it gave up, and what it was told it is paid

A letter that comes twice, because a reply was lost, gets the reply that it got, bit by bit. Another
letter in its place is refused, so nobody can ask the owner's player what else it might have done.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.federated.protections import PROTECTIONS
from noisemarket.files import exclusive, write_json
from noisemarket.flower.owner import OwnerFolder, Refused
from noisemarket.flower.played import Invitation, Record
from noisemarket.game.sides import OwnerSide
from noisemarket.learning.messages import OfferBatch, OwnerPlayer, QuoteBatch
from noisemarket.learning.players import owner_player
from noisemarket.ledger.contract import Contract, moment, nonce_of
from noisemarket.ledger.keys import OWNER, PRIVATE, KeyPair, SignedContract, sealed
from noisemarket.ledger.money import to_micro

PLAY, OFFER = "play.npz", "offer.json"
CONTRACT, STATEMENT = "contract.json", "statement.json"
SECRETS = ("privacy_cost", "markup", "payment_value", "privacy_weight")
"""What an owner must say about itself, in ``private.json`` or in its node's config."""

SETTLEMENT = "settlement"
"""What the curator's seal under ``settlement_of`` is for."""


def work_of(contract: Contract) -> dict[str, Any]:
    """What a contract says beyond the trade, in the form of an invitation."""
    stated = contract.protection_settings
    settings = PROTECTIONS.find(contract.protection).settings_in(stated)
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


def settlement_of(contract: str, paid: int | None, head: str) -> bytes:
    """What a curator seals when it says what it pays under a contract, named by its id."""
    return json.dumps([contract, paid, head]).encode()


class Desk:
    """An owner's desk. ``config`` is its node's own; it may name secrets, and the curator's key.

    ``rho-cap`` is the most zCDP that the owner sells in one job. Without one it plays no game,
    unless it says ``allow-unbounded = true``: it may then lose all its privacy.
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

    def answer(self, invitation: Invitation, sheet: QuoteBatch) -> OfferBatch:
        """Play a sheet, and keep player and reply before the reply goes out."""
        self._welcome(invitation)
        table = invitation.table
        with self._job(invitation.job) as folder:
            record = Record.load(folder / PLAY, invitation)
            if (known := record.reply_to(sheet)) is not None:
                return known
            if (
                len(sheet) > table.interactions_per_message
                or sheet.first + len(sheet) > table.iterations
            ):
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
        self._cap()

    def _player(self, invitation: Invitation, record: Record) -> OwnerPlayer:
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
        player = owner_player(invitation.table, side, seed, invitation.key)
        if record.state:
            player.restore(record.state)
        return player

    def _private(self) -> dict[str, Any]:
        """The owner's own numbers: of its file, and of its node's config over it."""
        place = self.owner.path / PRIVATE
        values: dict[str, Any] = {}
        if place.exists():
            values = json.loads(place.read_text(encoding="utf-8"))
        names = (*SECRETS, "payoff", "rho_cap", "allow_unbounded")
        given = {name: self._config.get(name.replace("_", "-")) for name in names}
        return values | {name: value for name, value in given.items() if value is not None}

    def _cap(self) -> float:
        """The most zCDP that the owner sells in one job; infinite only where it says so itself."""
        private = self._private()
        try:
            cap = float(private.get("rho_cap", math.inf))
        except (TypeError, ValueError):
            cap = math.nan
        if not cap >= 0.0:
            raise BadInput("rho_cap", private["rho_cap"], "give a number that is not negative.")
        if math.isinf(cap) and private.get("allow_unbounded") is not True:
            raise Refused("the owner has named no rho-cap")
        return cap

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
            _write(place, {**offer, "signature": signature})
            return signature

    def _check(self, contract: Contract, rho: float, folder: Path) -> None:
        try:
            record = Record.read(folder / PLAY)
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
        if contract.rho_cap > min(contract.rounds * rho * (1.0 + 1e-12), self._cap()):
            raise Refused("the contract allows more than the owner does")

    def _deals(self, record: Record) -> tuple[tuple[float, float, int], ...]:
        """What the owner agreed to: its deal, or no trade, should the budget not reach to it."""
        levels = record.invitation.table.levels
        player = self._player(record.invitation, record)
        out = []
        for saving, payment in (player.deals.usual(), (0, 0)):
            given = float(levels.savings[saving])
            paid = to_micro(float(levels.payments[payment]), "payment")
            out.append((given, levels.sigma_left(saving), paid))
        return tuple(out)

    def keep(self, signed: SignedContract) -> Mapping[str, Any]:
        """Keep the contract that the curator has signed too; gives the plan that came with it."""
        contract = signed.contract
        with self._job(contract.job) as folder:
            try:
                offer = json.loads((folder / OFFER).read_text(encoding="utf-8"))
                record = Record.read(folder / PLAY)
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
            _write(folder / CONTRACT, document)
            plan: Mapping[str, Any] = offer["plan"]
            return plan

    def settle(self, job: str, paid: int | None, head: str, seal: str) -> None:
        """Keep what the owner gave up by its own journal, and what the curator says it pays.

        Only the curator of the contract can say it, and only once.
        """
        from noisemarket.privacy.journal import read_journal

        with self._job(job) as folder:
            try:
                kept = json.loads((folder / CONTRACT).read_text(encoding="utf-8"))
            except FileNotFoundError:
                raise Refused("no contract in this job") from None
            contract = Contract.from_dict(kept["contract"])
            said = settlement_of(contract.id, paid, head)
            if not sealed(SETTLEMENT, said, contract.curator_key, seal):
                raise Refused("the curator's signature does not hold")
            if (folder / STATEMENT).exists():
                before = json.loads((folder / STATEMENT).read_text(encoding="utf-8"))
                if before["paid_micro"] != paid:
                    raise Refused("the job was settled otherwise")
            journal = self.owner.journal(job)
            document: dict[str, Any] = {"owner": self.owner.name, "releases": 0}
            if journal.exists():
                statement = read_journal(journal).statement(self.owner.name)
                document = statement.to_dict() | {"text": statement.text()}
            document |= {"paid_micro": paid, "ledger_head": head}
            _write(folder / STATEMENT, document)

    @contextlib.contextmanager
    def _job(self, job: str) -> Iterator[Path]:
        """The job's folder, for one message at a time."""
        folder = self.owner.job(job)
        with exclusive(folder, "owner-folder", wait=True):
            yield folder


def _write(place: Path, document: Mapping[str, Any]) -> None:
    write_json(place, document, private=True)
