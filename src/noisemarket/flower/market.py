"""The owners of a market over Flower: each on its SuperNode, with its secrets.

The curator's players live here, one for every owner; an owner's player lives with the owner. What
came by post is kept, so a market that was killed plays no letter twice: it goes on from what it
has, and an owner that is asked again gives the answer that it gave.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput, Interrupted, NoisemarketError
from noisemarket.federated.engine import Engine
from noisemarket.files import save_arrays
from noisemarket.flower import wire
from noisemarket.flower.desk import SETTLEMENT, settlement_of
from noisemarket.flower.engine import FlowerEngine
from noisemarket.flower.nodes import Nodes
from noisemarket.flower.played import Invitation
from noisemarket.flower.server import model_settings
from noisemarket.game.environment import Environment
from noisemarket.learning.messages import CuratorPlayer, OfferBatch
from noisemarket.learning.players import GameRules
from noisemarket.ledger.keys import OWNER, KeyPair, SignedContract, holds
from noisemarket.market.deals import Deals
from noisemarket.market.folder import JOURNAL, JobManifest, MarketFolder
from noisemarket.market.owners import Offer, Owners
from noisemarket.mechanisms import find_mechanism
from noisemarket.mechanisms.by_message import agreement_of, curator_against, game_rules
from noisemarket.mechanisms.learned import Learned
from noisemarket.mechanisms.mechanism import Progress, same_for_all
from noisemarket.negotiation import Negotiation, run_options
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.runfolder import RunFolder
from noisemarket.scenario import Scenario
from noisemarket.training import Order, protection_of

if TYPE_CHECKING:
    from flwr.serverapp import Grid

LETTERS, KEYS = "letters.npz", "keys.json"
LEFT_OUT, TRAFFIC = "left-out.json", "traffic.json"
LETTERS_IN_A_GAME = 8
"""Messages to an owner in a negotiation, where the scenario does not say how many."""

_TRIES = 3  # answers that cannot be used, from one owner to one question


def interactions(scenario: Scenario) -> int:
    """How many interactions go into one message."""
    learning = scenario.learning
    if learning.interactions_per_message > 1:
        return learning.interactions_per_message
    return max(2, math.ceil(learning.iterations / LETTERS_IN_A_GAME))


def work(scenario: Scenario) -> dict[str, Any]:
    """What every contract of a job will say beyond the trade."""
    protection, market, privacy = protection_of(scenario), scenario.market, scenario.privacy
    return {
        "rounds": scenario.training.rounds,
        "protection": protection.name,
        "settings": protection.settings(),
        "neighbours": privacy.neighbours,
        "delta": privacy.delta,
        "simulated": privacy.noise == "simulated",
        "missed_rounds": market.missed_rounds,
        "minimum_share": market.minimum_share,
        "false_alarm": market.false_alarm,
    }


class FlowerOwners(Owners):
    """Owners over a grid, inside a ServerApp.

    ``key`` is the curator's. ``timeout``, ``grace`` and ``at_once`` bound an exchange,
    ``insecure`` believes nodes without a name (see ``nodes``). ``wait`` is how long to wait for
    owners that are away: for each of them before it has signed, else it is left out; later for one.
    """

    def __init__(
        self,
        grid: Grid,
        scenario: Scenario,
        folder: MarketFolder,
        key: KeyPair,
        *,
        timeout: float = 600.0,
        grace: float = math.inf,
        wait: float = 120.0,
        insecure: bool = False,
        at_once: int = 0,
    ) -> None:
        self._grid, self._scenario, self._folder, self._key = grid, scenario, folder, key
        self._timeout, self._grace, self._wait = timeout, grace, wait
        self._insecure, self._at_once = insecure, at_once
        self._contracts: dict[int, str] = {}
        self._names: list[str] = []
        self._line: Nodes | None = None
        self._left_out: dict[str, str] = {}
        self._job = ""

    @property
    def journal(self) -> Path:
        return self._folder.curator / JOURNAL

    @property
    def left_out(self) -> Mapping[str, str]:
        return self._left_out

    @property
    def line(self) -> Nodes:
        """The line to the owners, once the job has a name."""
        if self._line is None:
            raise NoisemarketError("The job has not begun.")
        return self._line

    # Negotiation

    @staticmethod
    def check(scenario: Scenario) -> str:
        """The rule by which a scenario's owners learn; refuses a scenario that has none."""
        chosen = find_mechanism(scenario.mechanism)
        if not isinstance(chosen, Learned) or not isinstance(chosen.rule, str):
            remedy = "is not played by messages: over Flower, choose dypp, q_learning, phc, greedy."
            raise BadInput("mechanism", scenario.mechanism, remedy)
        if scenario.changes:
            remedy = "preferences cannot change on the way over Flower: drop [[changes]]."
            raise BadInput("changes", len(scenario.changes), remedy)
        return chosen.rule

    def negotiate(
        self,
        card: JobManifest,
        curator_key: str,
        watch: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Negotiation:
        rule = self.check(self._scenario)
        environment = self._scenario.environment(secrets=False)
        self._begin(environment, card)
        config = run_options(self._scenario).play
        table = game_rules(environment, rule, config, interactions(self._scenario))
        names, terms = self._names, work(self._scenario)
        keys = [int(key) for key in environment.population.key]
        players = {
            place: curator_against(place, table, environment, config)
            for place, name in enumerate(names)
            if name not in self._left_out
        }
        invitations = [Invitation(card.job, curator_key, key, table, terms) for key in keys]
        payoffs = environment.curator_side().payoffs()
        kept = _Letters(self._folder.curator / LETTERS, table, names, payoffs)
        for place, player in players.items():
            kept.replay(place, player)
        if any(player.played < table.iterations for player in players.values()):
            self.line.meet(self._wait)
        while behind := [p for p, one in players.items() if one.played < table.iterations]:
            if stop():
                raise Interrupted("stopped while negotiating; nothing was signed yet.")
            for place in self._post(behind, players, invitations, kept):
                del players[place]
            if not players:
                raise NoisemarketError("No owner has taken part in the negotiation.")
            share = min(one.played for one in players.values()) / table.iterations
            nobody = same_for_all(0, 0, 0)
            watch(Progress(slice(0, 0), nobody, int(share * len(names)), len(names)))
        deals = dict.fromkeys(range(len(names)), (0, 0))
        deals |= {place: player.deals.usual() for place, player in players.items()}
        return Negotiation(self._scenario, environment, agreement_of(deals, len(names)))

    def _post(
        self,
        places: Sequence[int],
        players: Mapping[int, CuratorPlayer],
        invitations: Sequence[Invitation],
        kept: _Letters,
    ) -> list[int]:
        """One letter to each of these owners; gives those that are to be left out."""
        table = invitations[0].table

        def content(place: int) -> Any:
            player = players[place]
            length = min(table.interactions_per_message, table.iterations - player.played)
            return wire.letter(invitations[place], player.draw_quotes(length))

        def take(place: int, reply: Any) -> bool:
            made = wire.read_reply(reply)
            if made is None:
                return False
            try:
                players[place].take(made)
            except BadInput:
                return False
            kept.add(place, made)
            return True

        away = self._ask(wire.LETTER, {place: content(place) for place in places}, take)
        kept.save()
        return away

    # Contracts

    def ready(self, made: Order) -> Order:
        if made.job.noise != "secure":
            return made
        # Asked again from the same model, owners send the same bits. The curator knows nothing of
        # their noise, but when it is the same: this key gives releases names for its own account.
        names = hashlib.sha256(f"names of releases\0{self._job}".encode()).digest()
        return replace(made, job=replace(made.job, noise_key=names))

    def keys(self, environment: Environment, deals: Deals) -> dict[str, str]:
        folder, found = RunFolder(self._folder.curator), dict[int, str]()
        if (folder.path / KEYS).exists():  # the ledger has them: they cannot change
            return dict(json.loads((folder.path / KEYS).read_text(encoding="utf-8")))

        def take(place: int, reply: Any) -> bool:
            key = wire.text_of(reply, "key") or ""
            if len(key) != 64 or not set(key) <= set("0123456789abcdef"):
                return False
            found[place] = key
            return True

        asked = {place: wire.with_config(job=self._job) for place in self._taking_part()}
        self._ask(wire.KEY, asked, take)
        keys = {self._names[place]: key for place, key in sorted(found.items())}
        folder.write_json(KEYS, keys)
        return keys

    def accept(self, offers: Sequence[Offer], made: Order) -> dict[int, str]:
        model, found = model_settings(made), dict[int, str]()
        contracts = {one.place: one.contract for one in offers}

        def take(place: int, reply: Any) -> bool:
            signature = wire.text_of(reply, "signature") or ""
            if not holds(OWNER, contracts[place], signature):
                return False
            found[place] = signature
            return True

        asked = {
            place: wire.offer(contract, {"index": place, "seed": made.job.seed, "model": model})
            for place, contract in contracts.items()
        }
        self._ask(wire.OFFER, asked, take)
        return found

    def keep(self, signed: Mapping[int, SignedContract]) -> None:
        """An owner that does not get it trains nothing, and says so when it is asked to."""
        self._contracts |= {place: one.contract.id for place, one in signed.items()}
        asked = {place: wire.signed(contract) for place, contract in signed.items()}
        self._ask(wire.KEEP, asked, lambda place, reply: bool(wire.config_of(reply).get("kept")),
                  leave_out=False)  # fmt: skip

    # Training and after

    def engine(self, made: Order) -> Engine:
        return FlowerEngine(self.line, made.job, self._names, self._job)

    def present(self, owners: Sequence[int]) -> Sequence[int]:
        wanted = set(owners)
        end = time.monotonic() + self._wait
        while not (here := wanted & set(self.line.meet(0.0))):
            if time.monotonic() > end:
                raise NoisemarketError("No owner is here: run again later.")
            time.sleep(0.5)
        return sorted(here)

    def settled(
        self, statements: Mapping[int, PrivacyStatement], paid: Mapping[int, int], head: str
    ) -> None:
        asked = {}
        for place in statements:
            amount = paid.get(place)
            said = settlement_of(self._contracts[place], amount, head)
            seal = self._key.seal(SETTLEMENT, said)
            asked[self._names[place]] = wire.settled(self._job, amount, head, seal)
        self.line.meet(0.0)
        self.line.ask(wire.SETTLED, asked, timeout=min(60.0, self._timeout))
        traffic = [asdict(one) for one in self.line.traffic]
        RunFolder(self._folder.curator).write_json(TRAFFIC, traffic)

    # Asking

    def _begin(self, environment: Environment, card: JobManifest) -> None:
        self._names = [str(name) for name in environment.population.names]
        self._job = card.job
        self._line = Nodes(
            self._grid, self._names, card.job,
            timeout=self._timeout, grace=self._grace, insecure=self._insecure,
            at_once=self._at_once,
        )  # fmt: skip
        place = self._folder.curator / LEFT_OUT
        if place.exists():
            self._left_out = dict(json.loads(place.read_text(encoding="utf-8")))

    def _taking_part(self) -> list[int]:
        return [at for at, name in enumerate(self._names) if name not in self._left_out]

    def _ask(
        self,
        kind: str,
        asked: Mapping[int, Any],
        take: Callable[[int, Any], bool],
        *,
        leave_out: bool = True,
    ) -> list[int]:
        """Ask owners until each has given an answer that can be used; gives those that have not.

        One that is away is asked again when it is back, for ``wait`` seconds after the others; one
        whose answers cannot be used, three times.
        """
        left, tries = dict(asked), dict.fromkeys(asked, 0)
        why = dict.fromkeys(asked, "away")
        end = math.inf
        while waiting := [place for place in left if tries[place] < _TRIES]:
            self.line.refusals.clear()
            here = [place for place in self.line.meet(0.0) if place in waiting]
            replies = self.line.ask(kind, {self._names[place]: left[place] for place in here})
            for place in here:
                name = self._names[place]
                if name in replies and take(place, replies[name]):
                    del left[place]
                elif name in replies or name in self.line.refusals:
                    tries[place] += 1
                    why[place] = self.line.refusals.get(name, "unusable answers")
            end = min(end, time.monotonic() + self._wait)
            if not left or time.monotonic() > end:
                break
            time.sleep(0.5)
        if leave_out and left:
            for place in left:
                self._left_out[self._names[place]] = f"{kind.removeprefix('query.')}: {why[place]}"
            RunFolder(self._folder.curator).write_json(LEFT_OUT, self._left_out)
        return sorted(left)


class _Letters:
    """All replies that came, on disk: enough to have the curator's players where they were."""

    def __init__(
        self, path: Path, table: GameRules, names: Sequence[str], payoffs: NDArray[np.float64]
    ) -> None:
        self._path = path
        game = json.dumps([table.to_dict(), list(names)], sort_keys=True)
        self._game = hashlib.sha256(game.encode() + payoffs.tobytes()).hexdigest()
        self._letter, self._iterations = table.interactions_per_message, table.iterations
        self._replies: dict[str, Any] = {}
        if not path.exists():
            return
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                same = str(kept["game"]) == self._game
                self._replies = {name: kept[name] for name in kept.files if name != "game"}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as problem:
            raise BadInput("letters", str(path), f"cannot be read ({problem}).") from None
        if not same:
            raise BadInput("letters", str(path), "are of another game: restore its scenario.")

    def replay(self, place: int, player: CuratorPlayer) -> None:
        """Have a player learn from what came before."""
        offers = self._replies.get(f"offers.{place}", np.zeros(0, np.int64))
        signed = self._replies.get(f"signed.{place}", np.zeros(0, bool))
        while player.played < len(offers):
            length = min(self._letter, self._iterations - player.played)
            part = slice(player.played, player.played + length)
            player.draw_quotes(length)
            player.take(OfferBatch(player.played, offers[part], signed[part]))

    def add(self, place: int, reply: OfferBatch) -> None:
        """Take in one more reply."""
        for name, more in (("offers", reply.offers), ("signed", reply.signed)):
            before = self._replies.get(f"{name}.{place}", more[:0])
            self._replies[f"{name}.{place}"] = np.concatenate([before, more])

    def save(self) -> None:
        """On disk when this returns."""
        save_arrays(self._path, game=self._game, **self._replies)
