"""What an owner is: ``handle(question) -> reply``. It plays, compares every field, signs, trains.

Quotes that come twice, because a reply was lost, get the reply that they got, bit by bit. Others in
their place are declined, so nobody can ask the owner's player what else it might have done. Torch
is imported when there is something to sign or to train, not before.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisemarket.errors import BadInput, BadSignature
from noisemarket.federated.models import maker_of
from noisemarket.federated.protections import PROTECTIONS
from noisemarket.federated.protections.protection import Protection, privacy_sold
from noisemarket.files import write_json
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.game.sides import SLACK, Behaviour, OwnerSide
from noisemarket.ledger.contract import Contract, moment
from noisemarket.ledger.entries import SETTLED, SIGNED
from noisemarket.ledger.keys import OWNER, PRIVATE, SignedContract
from noisemarket.ledger.money import UNITS, is_currency, prices
from noisemarket.ledger.receipts import Receipt, UploadReceipt
from noisemarket.owner import owner_messages as messages
from noisemarket.owner.folder import OFFER, PLAY, SALE, STATEMENT, Declined, OwnerFolder
from noisemarket.owner.invitations import (
    AnyInvitation,
    GameInvitation,
    GameRecord,
    JobInvitation,
    MenuInvitation,
    SaleInvitation,
    SaleRecord,
    drawn_up,
    negotiated,
    of_this_version,
)
from noisemarket.owner.terms import (
    CURRENCY,
    STATED,
    WEIGHTS,
    Plan,
    budget_of,
    contract_of,
    differing_fields,
    protection_of,
    single_shard,
)
from noisemarket.owner.wallet import AHEAD, Balance, Wallet
from noisemarket.pricing.messages import OwnerPlayer, ProposalBatch, QuoteBatch, owner_player
from noisemarket.privacy.accountant import TOLERANCE, BudgetSpent, PrivacyBudget, PrivacyStatement
from noisemarket.privacy.zcdp import gaussian_rho_for_epsilon, sigma_for_rho

if TYPE_CHECKING:
    from noisemarket.owner.round import Models

PREFERENCES = ("privacy_cost", "markup", "payment_value", "privacy_weight")
"""What an owner must say about itself in ``private.json``."""

LIMITS = ("rho_cap", "rho_budget", "epsilon_budget")
"""What an owner sells at most: in one job, and twice in all jobs."""

DELTA = 1e-5
"""At which an epsilon budget holds, unless the owner says otherwise."""
MOST = {
    "most_weights": 10_000_000, "most_rounds": 10_000, "most_steps": 1000, "most_unsigned": 5,
}  # fmt: skip
"""What a curator may ask of an owner that says nothing else: weights of the model, rounds, local
steps or epochs in a round, and jobs of a month that end without a contract or any training."""

BELOW_FLOOR = "the contract is below the owner's floor"
KEEPS_MORE = "unpaid, the owner keeps more noise than the contract counts from"

_ABOUT = 1.0 - 1e-9  # two machines may round differently


class OwnerAgent:
    """Acts for one owner, and keeps to the owner's limits.

    Args:
        folder: what the owner keeps.
        config: its node's own settings. They may name its limits: ``rho-cap`` is the most zCDP
            that it sells in one job, ``rho-budget`` in all jobs together; ``epsilon-budget``, at
            ``budget-delta``, says the same as an epsilon. Without any it plays no game, unless it
            says ``allow-unbounded = true``: it may lose all its privacy. ``curator-key`` is the
            only curator that it deals with. ``allow-simulated = true`` is for simulations: without
            it the owner plays no game whose noise would come from a seed. ``sigma-max`` is the
            noise that it keeps unpaid: what it sells is counted from there. ``floor`` is the least
            noise that it keeps at any price. It signs nothing below either, paid or unpaid.
            ``most-weights``, ``most-rounds``, ``most-steps`` and ``most-unsigned`` are in ``MOST``.
        models: makes the maker of the owner's model from the settings in its terms.

    Its preferences may change within a game (``changes`` in ``private.json``: ``at`` which
    interaction, and the new ``privacy_cost`` and ``markup``), and it may answer with errors or not
    at all (``behaviour``, and the ``key`` that names its errors).
    """

    def __init__(
        self,
        folder: OwnerFolder,
        config: Mapping[str, Any] | None = None,
        models: Models = maker_of,
    ) -> None:
        self.folder, self._config, self._models = folder, config or {}, models

    def handle(self, question: messages.Question) -> messages.Reply:
        """Answer a question of the curator: the one door to an owner."""
        match question:
            case messages.KeyQuestion():
                return messages.PublicKey(self.invited(question.invitation))
            case messages.Quotes():
                return messages.Proposals(self.answer(question.invitation, question.batch))
            case messages.PriceQuestion():
                return messages.Stay(self.stay(question.invitation, question.price))
            case messages.BidQuestion():
                return messages.Chosen(self.bid(question.invitation))
            case messages.MenuQuestion():
                return messages.Chosen(self.choose(question.invitation))
            case messages.ContractOffer():
                return messages.Signature(self.accept(question.contract, question.plan))
            case messages.ContractSigned():
                receipt = self.keep_accepted(question.signed, question.receipt)
                return messages.Countersigned(receipt)
            case messages.Train():
                return messages.Update(self.train(question))
            case messages.JobSettled():
                return messages.Countersigned(self.settle(question.receipt, question.upload))
        raise Declined("no such question")

    @property
    def public_key(self) -> str:
        return self.folder.key.public_hex

    # The negotiation

    def invited(self, invitation: JobInvitation) -> str:
        """The owner's public key, for a job that it may take part in; the first invitation is
        kept."""
        self._check_invitation(invitation)
        with self.folder.locked(invitation.job, new=True) as path:
            known: AnyInvitation
            if (path / SALE).exists():
                known = SaleRecord.read(path / SALE).invitation
            elif (path / PLAY).exists():
                known = GameRecord.read(path / PLAY).invitation
            else:
                SaleRecord(invitation).save(path / SALE)
                known = invitation
            _same_job(known).refuse_other(_same_job(invitation))
        return self.public_key

    def answer(self, invitation: GameInvitation, quotes: QuoteBatch) -> ProposalBatch:
        """Play through the next quotes of a game; player and reply are kept before the reply goes
        out."""
        self._check_invitation(invitation)
        rules = invitation.table
        with self.folder.locked(invitation.job, new=True) as path:
            kept = path / PLAY
            _only(path / SALE)
            record = GameRecord.read(kept) if kept.exists() else GameRecord(invitation)
            record.invitation.refuse_other(invitation)
            if (known := record.reply_to(quotes)) is not None:
                return known
            most = rules.interactions_per_message
            if len(quotes) > most or quotes.first + len(quotes) > rules.iterations:
                raise Declined("the quotes are more than was agreed")
            player = self._player(record)
            try:
                reply = player.answer(quotes)
            except BadInput:
                raise Declined("the quotes do not fit the game") from None
            record.then(quotes, reply, player).save(kept)
            return reply

    def stay(self, invitation: SaleInvitation, payment: int) -> bool:
        """Whether the owner sells at this price, as in a clock auction; kept before it is said. The
        truth is best for it: it stays while the payment covers the privacy sold, markup
        included."""
        with self._sale(invitation) as (record, keep):
            if (known := record.answered(payment)) is not None:
                return known
            stays = bool(self._side(invitation).accepts(invitation.saving, payment)[0])
            keep(stayed=payment) if stays else keep(left=payment)
            return stays

    def bid(self, invitation: SaleInvitation) -> int:
        """The lowest payment level for which the owner sells; K + 1 if it does not."""
        with self._sale(invitation) as (record, keep):
            if record.bid is not None:
                return record.bid
            if (record.stayed, record.left) != (None, None):  # its limit, after a price
                raise Declined("the owner has answered to a price")
            saving = slice(invitation.saving, invitation.saving + 1)
            bid = max(1, int(self._side(invitation).asks(saving)[0, 0]))
            keep(bid=bid)
            return bid

    def choose(self, invitation: MenuInvitation) -> int:
        """The item of a menu that the owner takes; -1 for none."""
        with self._sale(invitation) as (record, keep):
            if record.item is not None:
                return record.item
            items = np.array(invitation.items, np.int64).reshape(-1, 2)
            item = int(self._side(invitation).choose(*items.T)[0])
            keep(item=item)
            return item

    @contextlib.contextmanager
    def _sale(self, invitation: JobInvitation) -> Iterator[tuple[SaleRecord, Callable[..., None]]]:
        """What was answered in a sale so far, and what keeps one more answer before it is said."""
        self._check_invitation(invitation)
        with self.folder.locked(invitation.job, new=True) as path:
            file = path / SALE
            _only(path / PLAY)
            record = SaleRecord.read(file) if file.exists() else SaleRecord(invitation)
            record.invitation.refuse_other(invitation)
            yield record, lambda **answer: replace(record, **answer).save(file)

    def preferences(self) -> dict[str, float]:
        """What the owner says about itself."""
        return self._preferences(self._private())

    def _preferences(self, private: Mapping[str, Any]) -> dict[str, float]:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            own = {name: float(private[name]) for name in PREFERENCES}
            if all(map(math.isfinite, own.values())):
                return own
        needed = ", ".join(PREFERENCES)
        raise BadInput(PRIVATE, str(self.folder.path), f"give numbers for {needed}.")

    def own_noise(self, name: str) -> float:
        """A noise that the owner states itself, ``floor`` or ``sigma_max``; 0 if it does not."""
        noise = self._private().get(name, 0.0)
        if type(noise) not in (int, float) or not noise >= 0.0:
            raise self._wrong(name, noise, "give a number that is not negative.")
        return float(noise)

    def _most(self, name: str) -> int:
        """The owner's own limit of what a curator may ask of it."""
        most = self._private().get(name, MOST[name])
        if type(most) is not int or most < 0:
            raise self._wrong(name, most, "give a whole number that is not negative.")
        return most

    def _wrong(self, name: str, value: object, remedy: str) -> BadInput:
        return BadInput(f"{name} of owner {self.folder.name}", value, remedy)

    def _check_invitation(self, invitation: GameInvitation | JobInvitation) -> None:
        expected = self._config.get("curator-key")
        if expected is not None and invitation.curator_key != expected:
            raise Declined("that is not the curator's key")
        if not is_currency(invitation.work.get(CURRENCY, UNITS)):
            raise Declined("the currency is not a short word")
        new = self.folder.is_new(invitation.job)
        if new and self.folder.left_unsigned() >= self._most("most_unsigned"):
            raise Declined("too many jobs have ended without a contract")
        simulated = invitation.work.get("simulated") is not False
        if simulated and not self._config.get("allow-simulated", False):
            raise Declined("noise from a seed hides nothing")
        least = self._affordable(invitation.job, invitation.work)
        if least > invitation.levels.sigma_max * (1.0 + SLACK):
            raise Declined(self.why_dry(invitation.job))

    def why_dry(self, job: str = "") -> str:
        """Why a job costs too much, even with all the noise."""
        if self.allowed(job) < self.limits()[0]:
            return "the privacy budget is spent"
        return "with all its noise the job costs more than the owner's privacy cap"

    def _side(self, invitation: GameInvitation | JobInvitation, at: float = math.inf) -> OwnerSide:
        """What the owner knows of itself on the grids of a job, ``at`` an interaction of a game."""
        levels, work = invitation.levels, invitation.work
        private = self._private()
        for change in private.get("changes", ()):
            if change["at"] <= at:
                private |= change
        payoff = private.get("payoff", "privacy_loss")
        affordable = self._affordable(invitation.job, work)
        own = self._preferences(private)
        return OwnerSide(
            levels=levels,
            payoff=payoff,
            payment_value=own["payment_value"],
            privacy_weight=own["privacy_weight"],
            privacy_cost=np.array([own["privacy_cost"]]),
            markup=np.array([own["markup"]]),
            floor=np.array([max(self.own_noise("floor"), affordable)]),
            sold=self._sold(levels, work) if payoff == "epsilon_loss" else None,
            key=np.array([int(private.get("key", 0))], np.uint64),
            behaviour=Behaviour(**private.get("behaviour", {})),
        )

    def _sold(self, levels: Levels, work: Mapping[str, Any]) -> FloatArray:
        """The privacy that each saving sells, by the work on offer and the owner's records."""
        try:
            protection = PROTECTIONS.find(work["protection"]).from_settings(work["settings"])
            return privacy_sold(
                protection,
                [levels.sigma_left(level) for level in range(levels.saving_levels + 1)],
                rounds=work["rounds"],
                records=self.folder.record_count(),
                neighbours=work["neighbours"],
                delta=work["delta"],
            )
        except (KeyError, TypeError, ValueError, BadInput):
            raise Declined("the work cannot be accounted for") from None

    def _player(self, record: GameRecord) -> OwnerPlayer:
        invitation = record.invitation
        seed = int(self._private().get("seed", secrets.randbits(64)))
        rules = invitation.table
        sides = [self._side(invitation, start) for start in rules.starts]
        if rules.ends_early:  # it plays for what the owner wants in the end
            sides = [self._side(invitation)]
        player = owner_player(rules, sides, seed, invitation.key)
        if record.state:
            with of_this_version():
                player.restore(record.state)
        return player

    def _private(self) -> dict[str, Any]:
        """The owner's preferences, and its limits: those of its node's config come first."""
        names = ("floor", "sigma_max", "allow_unbounded", *LIMITS, "budget_delta", *MOST)
        given = {name: self._config.get(name.replace("_", "-")) for name in names}
        given = {name: value for name, value in given.items() if value is not None}
        return self.folder.private() | given

    def limits(self, job: float | None = None) -> tuple[float, float]:
        """The most zCDP that the owner sells in one job (``job``, if it names that here), and in
        all; both infinite only where it says so itself."""
        private, found = self._private(), dict.fromkeys(LIMITS, math.inf)
        for name in LIMITS & private.keys():
            given = private[name]
            if type(given) not in (int, float) or not given >= 0.0:
                raise self._wrong(name, given, "give a number that is not negative.")
            found[name] = float(given)
        cap, budget, epsilon = found.values()
        if math.isfinite(epsilon):
            delta = float(private.get("budget_delta", DELTA))
            known = gaussian_rho_for_epsilon(epsilon, delta) if epsilon > 0.0 else 0.0
            budget = min(budget, known)
        if job is not None:
            return min(cap, job), budget
        if math.isinf(min(cap, budget)) and private.get("allow_unbounded") is not True:
            raise Declined("the owner has named no rho-cap and no rho-budget")
        return cap, budget

    def wallet(self) -> Wallet | None:
        return self.folder.wallet()

    def allowed(self, job: str = "") -> float:
        """The most zCDP that a job may cost: what the owner sells in one, or has left if less."""
        cap, budget = self.limits()
        wallet = None if math.isinf(budget) else self.wallet()
        return cap if wallet is None else min(cap, wallet.left(budget, job))

    def _affordable(self, job: str, work: Mapping[str, Any]) -> float:
        """The least noise with which all rounds of a job cost no more than is allowed."""
        allowed = self.allowed(job)
        if math.isinf(allowed):
            return 0.0
        try:
            protection = PROTECTIONS.find(work["protection"]).from_settings(work["settings"])
            most = self._most("most_weights")
            size, relation = int(work.get(WEIGHTS, most)), self.folder.neighbours()
            if not 0 < size <= most:
                raise Declined("the job has more weights than the owner allows")
            sensitivity = protection.sensitivity(size, self.folder.record_count(), relation)
            return sigma_for_rho(sensitivity, allowed / work["rounds"])
        except (KeyError, TypeError, ValueError, ArithmeticError, BadInput):
            raise Declined("the work cannot be accounted for") from None

    # The contract

    def sign(
        self,
        contract: Contract,
        expected: Iterable[Contract],
        cost: PrivacyBudget,
        cap: float | None = None,
    ) -> str:
        """The owner's signature, in hexadecimal: the one place where an owner signs.

        ``expected`` is what it agreed to, drawn up by itself: a trade, or none should the budget
        not reach to it. ``cost`` is by its own account, and reserved. ``cap`` is the most zCDP of
        this job, if the owner names it here.
        """
        other: list[str] = ["terms"] * len(vars(contract))
        for one in expected:
            other = min(other, differing_fields(contract, one), key=len)
            if not other:
                break
        if other:
            raise Declined(f"owner {self.folder.name} agreed to other {', '.join(other)}")
        if moment("expires_at", contract.expires_at) <= (now := datetime.now(UTC)):
            raise Declined("the contract has expired")
        if moment("offered_at", contract.offered_at) > now + AHEAD:
            raise Declined("the contract is of a later time than now")
        if contract.sigma < self.own_noise("floor") * _ABOUT:
            raise Declined(BELOW_FLOOR)
        if contract.sigma + contract.saving < self.own_noise("sigma_max") * _ABOUT:
            raise Declined(KEEPS_MORE)
        cap, budget = self.limits(cap)
        if cost.rho_cap > cap * (1.0 + TOLERANCE):
            raise Declined("the contract costs more privacy than the owner sells in one job")
        if (wallet := self.wallet()) is not None:
            self.folder.check_wallet(wallet)
            try:
                wallet.reserve(contract.job, cost, contract.expires_at, budget)
            except BudgetSpent:
                raise Declined("the contract costs more privacy than is left") from None
        return self.folder.key.sign(OWNER, contract)

    def accept(self, contract: Contract, plan: Plan) -> str:
        """The signature under what was negotiated in this job; the same again if asked again."""
        with self.folder.locked(contract.job) as path:
            document = {"contract": contract.to_dict(), "plan": plan}
            if (path / OFFER).exists():
                before = json.loads((path / OFFER).read_text(encoding="utf-8"))
                signature = str(before.pop("signature"))
                if before != json.loads(json.dumps(document)):
                    raise Declined("another contract was signed in this job")
                return signature
            if self.folder.wallets() and not self.folder.wallet().path.exists():
                words = "The records of owner %s have changed: another account begins, in %s."
                getLogger(__name__).warning(words, self.folder.name, self.folder.path)
            signature = self._sign_agreed(contract, self._negotiated(contract.job), plan)
            write_json(path / OFFER, {**document, "signature": signature}, private=True)
            return signature

    def _negotiated(self, job: str) -> GameRecord | SaleRecord:
        """What the owner has agreed to in a job."""
        return negotiated(self.folder.job(job))

    def _sign_agreed(self, contract: Contract, record: GameRecord | SaleRecord, plan: Plan) -> str:
        """The signature under its trade, or none. Of the contract at hand are only times and a
        cap."""
        invitation, times = record.invitation, (contract.offered_at, contract.expires_at)
        amounts = prices(invitation.levels.payments)
        paid = amounts.index(contract.payment) if contract.payment in amounts else -1
        try:
            budget, own, records = self._work(contract, plan)
            expected = [
                drawn_up(
                    invitation, self.folder.name, self.public_key, deal, times, budget, records
                )
                for deal in self._agreed_levels(record, contract, paid)
            ]
        except (KeyError, TypeError, ValueError, BadInput):
            raise Declined("the work cannot be done as offered") from None
        return self.sign(contract, expected, own)

    def _work(self, contract: Contract, plan: Plan) -> tuple[PrivacyBudget, PrivacyBudget, int]:
        """What a round costs by the contract's relation of neighbours and by the owner's own, and
        how many records it has."""
        from noisemarket.owner.round import OwnRound

        size = self._models(plan["model"]).size()
        self.check_job(contract.rounds, protection_of(contract), size)
        mine = OwnRound(self.folder, contract, plan, self._models)
        return mine.budget, mine.own_budget, len(mine)

    def check_job(self, rounds: int, protection: Protection, weights: int) -> None:
        """Decline a job that asks for more than the owner allows."""
        steps = protection.settings()
        for name, asked in (
            ("most_rounds", rounds),
            ("most_steps", int(steps.get("steps", 1)) * int(steps.get("epochs", 1))),
            ("most_weights", weights),
        ):
            if asked > self._most(name):
                raise Declined(f"the job has more {name[5:]} than the owner allows")

    def _agreed_levels(
        self, record: GameRecord | SaleRecord, contract: Contract, paid: int
    ) -> list[tuple[int, int]]:
        """The trades that the owner signs, as levels; ``paid`` is the contract's payment level or
        -1."""
        invitation = record.invitation
        if isinstance(record, GameRecord):
            return [self._player(record).deal(), (0, 0)]
        if type(invitation) is JobInvitation:  # to be taken or left
            given = np.flatnonzero(invitation.levels.savings == contract.saving)
            offers = [(int(saving), paid) for saving in given if paid >= 0]
            side = self._side(invitation)
            return [one for one in offers if side.accepts(*one)[0]] + [(0, 0)]
        return record.deals(paid)

    def accept_without_game(
        self,
        contract: Contract,
        parameters: int,
        rho_cap: float,
        *,
        index: int = 0,
        seed: int = 0,
    ) -> str:
        """The signature under a contract that the owner has read and likes, for an app of its own.

        Signing keeps the terms: from now on ``client_mod.contract_mod`` trains under them.

        Args:
            contract: what the curator offers, under ``sharded`` with one shard.
            parameters: how many numbers of the owner's model are trained.
            rho_cap: the most zCDP that the owner sells in this job.
            index: the owner's number in the job; it and ``seed`` count where noise is simulated.
        """
        protection = single_shard(contract)
        budget = budget_of(contract, parameters, records=1)
        own = budget_of(contract, parameters, 1, self.folder.neighbours())
        stated = {name: getattr(contract, name) for name in STATED} | {
            "owner": self.folder.name,
            "owner_key": self.public_key,
            "settings": protection.settings_in(contract.protection_settings),
        }
        signature = self.sign(contract, [contract_of(stated, budget, records=1)], own, rho_cap)
        model = {"parameters": parameters}
        self.folder.agree(contract, {"index": index, "seed": seed, "model": model})
        self.folder.wallet().hold(contract.job)
        return signature

    def keep(self, signed: SignedContract, curator_key: str, receipt: Receipt) -> Receipt:
        """Keep a copy of the contract and the receipt, once the curator's signatures hold. Gives
        the receipt with the owner's signature, or a later one (``OwnerFolder.countersign``)."""
        try:
            signed.verify(self.public_key, curator_key)
        except BadSignature:
            raise Declined("the curator's signature does not hold") from None
        if not self.folder.has_contract(signed.contract.job) and (wallet := self.wallet()):
            try:
                wallet.hold(signed.contract.job)
            except BudgetSpent:
                raise Declined("the contract came back too late") from None
        self.folder.keep_contract(signed)
        return self.folder.countersign(receipt, signed.contract, SIGNED)

    def keep_accepted(self, signed: SignedContract, receipt: Receipt) -> Receipt:
        """Keep the contract that was accepted in this job; the owner now trains under it."""
        contract = signed.contract
        with self.folder.locked(contract.job) as path:
            try:
                offer = json.loads((path / OFFER).read_text(encoding="utf-8"))
            except FileNotFoundError:
                raise Declined("nothing was signed in this job") from None
            same = json.loads(json.dumps(contract.to_dict())) == offer["contract"]
            if not same or signed.owner_signature != offer["signature"]:
                raise Declined("that is not the contract that was signed")
            record = self._negotiated(contract.job)
            kept = self.keep(signed, record.invitation.curator_key, receipt)
            self.folder.agree(contract, offer["plan"])
            return kept

    def train(self, question: messages.Train) -> Any:
        """The owner's update for a round, from this global model; it was kept and charged."""
        (contract, plan), start = own_terms(self.folder, question), question.weights
        if start.dtype != np.float32 or not np.isfinite(start).all():
            raise Declined("the model is not finite single-precision numbers")
        from noisemarket.owner.round import OwnRound

        mine = OwnRound(self.folder, contract, plan, self._models)
        return mine.upload(question.round_number, start, question.receipt)

    def settle(self, receipt: Receipt, upload: UploadReceipt | None = None) -> Receipt:
        """Keep what the owner gave up, what the curator says it pays, and its receipts of uploads.
        Only the curator of the contract can say it, and only once."""
        job, paid = receipt.job, receipt.paid
        with self.folder.locked(job) as path:
            contract = self.folder.contract(job)
            settled = (path / STATEMENT).exists()
            if settled and receipt.is_of(contract, SETTLED):
                before = json.loads((path / STATEMENT).read_text(encoding="utf-8"))
                if before["paid_micro"] != paid:
                    raise Declined("the job was settled otherwise")
            self.folder.keep_upload_receipt(contract, upload, contract.rounds + 1)
            kept = self.folder.countersign(receipt, contract, SETTLED)
            if kept.head != receipt.head:
                return kept
            wallet = self.wallet()
            account = None if wallet is None else wallet.account()
            if not settled:
                given_up, uploads = self._given_up(job, account), self.folder.uploads(job)
                more = {"ledger_head": receipt.head} | ({"uploads": uploads} if uploads else {})
                more |= {} if wallet is None else {"records": wallet.records}
                with contextlib.suppress(Declined):  # an app of its own negotiates nothing
                    work = self._negotiated(job).invitation.work
                    more |= {name: work[name] for name in (CURRENCY,) if name in work}
                self.folder.keep_statement(job, given_up, paid, account, **more)
            if wallet is not None:
                wallet.free(job)
            return kept

    def _given_up(self, job: str, account: Balance | None) -> PrivacyStatement | None:
        """What the owner gave up in a job, by its own account; None if it trained nothing."""
        held = None if account is None else account.open.get(job)
        if held is None or not held.releases:
            return None
        return PrivacyStatement.of(held.terms, held.spent, held.rounds, held.releases)


def own_terms(folder: OwnerFolder, asked: messages.Train) -> tuple[Contract, Plan]:
    """The owner's own terms for a round; declined where the curator expects others."""
    contract, plan = folder.terms(asked.job)
    if (folder.job(asked.job) / STATEMENT).exists():
        raise Declined("the job is settled")
    if asked.sigma is not None and asked.sigma != contract.sigma:
        raise Declined("sigma is not the contracted one")
    if asked.round_number > contract.rounds:
        raise Declined("the contract has no such round")
    return contract, plan


def public_reply(answer: Callable[[], messages.Reply]) -> messages.Reply:
    """What an owner answers, or a refusal in words that are public: the text of an error could hold
    anything, and goes to this machine's own log."""
    try:
        return answer()
    except Declined as problem:
        getLogger(__name__).warning("Declined: %s.", problem)
        return messages.Refused(str(problem))
    except Exception:
        getLogger(__name__).exception("The message could not be answered.")
        return messages.Refused("failed on the owner's side", failed=True)


def _only(other: Path) -> None:
    """Decline a second negotiation, of another kind, in one job."""
    if other.exists():
        raise Declined("the negotiation of this job is another one")


def _same_job(invitation: AnyInvitation) -> AnyInvitation:
    """What every invitation to a job says."""
    return AnyInvitation(invitation.job, invitation.curator_key, invitation.work)
