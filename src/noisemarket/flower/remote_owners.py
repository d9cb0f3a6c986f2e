"""The owners of a market over Flower: each on its SuperNode, with its secrets.

The curator's players are here, one for every owner; an owner's player is with the owner. Every
reply is kept, so a market that was killed asks for none twice: it goes on from what it has, and an
owner that is asked again gives the answer that it gave.
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
from noisemarket.flower.flower_engine import FlowerEngine
from noisemarket.flower.line import Bounds, Line
from noisemarket.game.environment import Environment
from noisemarket.learning.messages import CuratorPlayer, OfferBatch
from noisemarket.learning.players import GameRules
from noisemarket.ledger.contract import Contract, is_key
from noisemarket.ledger.keys import OWNER, SignedContract, holds
from noisemarket.market.deals import Deals
from noisemarket.market.market_folder import JOURNAL, JobManifest, MarketFolder
from noisemarket.market.offers import Curator, job_terms
from noisemarket.market.owners import Owners
from noisemarket.mechanisms import find_mechanism
from noisemarket.mechanisms.by_message import agreement_of, curator_against, game_rules
from noisemarket.mechanisms.learned import Learned
from noisemarket.mechanisms.mechanism import Progress, Stop, Watch, same_for_all
from noisemarket.negotiation import Negotiation, run_options
from noisemarket.owner.agent import SETTLEMENT, settlement_of
from noisemarket.owner.record import Invitation
from noisemarket.owner.terms import Assignment
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.runfolder import RunFolder
from noisemarket.scenario import Scenario
from noisemarket.training import Order

if TYPE_CHECKING:
    from flwr.serverapp import Grid

REPLIES, KEYS = "replies.npz", "keys.json"
LEFT_OUT, TRAFFIC = "left-out.json", "traffic.json"
MESSAGES_IN_A_GAME = 8
"""Messages to an owner in a negotiation, where the scenario does not say how many."""

_TRIES = 3  # answers that cannot be used, from one owner to one question


def interactions(scenario: Scenario) -> int:
    """How many interactions go into one message."""
    learning = scenario.learning
    if learning.interactions_per_message > 1:
        return learning.interactions_per_message
    return max(2, math.ceil(learning.iterations / MESSAGES_IN_A_GAME))


class RemoteOwners(Owners):
    """Owners over a grid, inside a ServerApp.

    Args:
        grid: Flower's.
        scenario: what is run.
        folder: the job's.
        key: the folder of the curator's key.
        bounds: how long owners are waited for, and how many are asked at a time.
    """

    def __init__(
        self, grid: Grid, scenario: Scenario, folder: MarketFolder, key: Path, bounds: Bounds
    ) -> None:
        self._grid, self._scenario, self._folder = grid, scenario, folder
        self._curator, self._bounds = Curator(key), bounds
        self._contracts: dict[int, str] = {}
        self._names: list[str] = []
        self._line: Line | None = None
        self._left_out: dict[str, str] = {}
        self._job = ""

    @property
    def journal(self) -> Path:
        return self._folder.curator / JOURNAL

    @property
    def left_out(self) -> Mapping[str, str]:
        return self._left_out

    @property
    def line(self) -> Line:
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
        self, manifest: JobManifest, curator_key: str, watch: Watch, stop: Stop
    ) -> Negotiation:
        rule = self.check(self._scenario)
        environment = self._scenario.environment(secrets=False)
        self._begin(environment, manifest)
        config = run_options(self._scenario).play
        table = game_rules(environment, rule, config, interactions(self._scenario))
        names, work = self._names, job_terms(self._scenario, manifest).public()
        keys = [int(key) for key in environment.population.key]
        players = {
            index: curator_against(index, table, environment, config)
            for index, name in enumerate(names)
            if name not in self._left_out
        }
        invitations = [Invitation(manifest.job, curator_key, key, table, work) for key in keys]
        payoffs = environment.curator_side().payoffs()
        kept = _Replies(self._folder.curator / REPLIES, table, names, payoffs)
        for index, player in players.items():
            kept.replay(index, player)
        if any(player.played < table.iterations for player in players.values()):
            self.line.meet(self._bounds.wait)
        while behind := [p for p, one in players.items() if one.played < table.iterations]:
            if stop():
                raise Interrupted("stopped while negotiating; nothing was signed yet.")
            for index in self._play(behind, players, invitations, kept):
                del players[index]
            if not players:
                raise NoisemarketError("No owner has taken part in the negotiation.")
            share = min(one.played for one in players.values()) / table.iterations
            nobody = same_for_all(0, 0, 0)
            watch(Progress(slice(0, 0), nobody, int(share * len(names)), len(names)))
        deals = dict.fromkeys(range(len(names)), (0, 0))
        deals |= {index: player.deals.usual() for index, player in players.items()}
        return Negotiation(self._scenario, environment, agreement_of(deals, len(names)))

    def _play(
        self,
        owners: Sequence[int],
        players: Mapping[int, CuratorPlayer],
        invitations: Sequence[Invitation],
        kept: _Replies,
    ) -> list[int]:
        """One message to each of these owners; gives those that are to be left out."""
        table = invitations[0].table

        def content(index: int) -> Any:
            player = players[index]
            length = min(table.interactions_per_message, table.iterations - player.played)
            return wire.quotes(invitations[index], player.draw_quotes(length))

        def take(index: int, reply: Any) -> bool:
            offers = wire.read_offers(reply)
            if offers is None:
                return False
            try:
                players[index].take(offers)
            except BadInput:
                return False
            kept.add(index, offers)
            return True

        away = self._ask(wire.QUOTES, {index: content(index) for index in owners}, take)
        kept.save()
        return away

    # Contracts

    def with_noise(self, order: Order) -> Order:
        if order.job.noise != "secure":
            return order
        # Asked again from the same model, owners send the same bits. The curator knows nothing of
        # their noise, but when it is the same: this key gives releases names for its own account.
        names = hashlib.sha256(f"names of releases\0{self._job}".encode()).digest()
        return replace(order, job=replace(order.job, noise_key=names))

    def keys(self, environment: Environment, deals: Deals) -> dict[str, str]:
        folder, found = RunFolder(self._folder.curator), dict[int, str]()
        if (folder.path / KEYS).exists():  # the ledger has them: they cannot change
            return dict(json.loads((folder.path / KEYS).read_text(encoding="utf-8")))

        def take(index: int, reply: Any) -> bool:
            key = wire.text_of(reply, "key") or ""
            if not is_key(key):
                return False
            found[index] = key
            return True

        here = (at for at, name in enumerate(self._names) if name not in self._left_out)
        self._ask(wire.KEY, {index: wire.with_config(job=self._job) for index in here}, take)
        keys = {self._names[index]: key for index, key in sorted(found.items())}
        folder.write_json(KEYS, keys)
        return keys

    def sign(self, contracts: Mapping[int, Contract], order: Order) -> dict[int, str]:
        model, found = order.job.model.settings(), dict[int, str]()

        def take(index: int, reply: Any) -> bool:
            signature = wire.text_of(reply, "signature") or ""
            if not holds(OWNER, contracts[index], signature):
                return False
            found[index] = signature
            return True

        asked = {
            index: wire.contract(contract, Assignment(index, order.job.seed, model))
            for index, contract in contracts.items()
        }
        self._ask(wire.CONTRACT, asked, take)
        return found

    def keep(self, signed: Mapping[int, SignedContract]) -> None:
        """An owner that does not get it trains nothing, and says so when it is asked to."""
        self._contracts |= {index: one.contract.id for index, one in signed.items()}
        asked = {index: wire.signed(contract) for index, contract in signed.items()}
        self._ask(wire.SIGNED, asked, lambda index, reply: bool(wire.config_of(reply).get("kept")),
                  leave_out=False)  # fmt: skip

    # Training and after

    def engine(self, order: Order) -> Engine:
        return FlowerEngine(self.line, order.job)

    def present(self, owners: Sequence[int]) -> Sequence[int]:
        wanted = set(owners)
        end = time.monotonic() + self._bounds.wait
        while not (here := wanted & set(self.line.meet(0.0))):
            if time.monotonic() > end:
                raise NoisemarketError("No owner is here: run again later.")
            time.sleep(0.5)
        return sorted(here)

    def settled(
        self, statements: Mapping[int, PrivacyStatement], paid: Mapping[int, int], head: str
    ) -> None:
        asked = {}
        for index in statements:
            amount = paid.get(index)
            said = settlement_of(self._contracts[index], amount, head)
            seal = self._curator.seal(SETTLEMENT, said)
            asked[self._names[index]] = wire.settled(self._job, amount, head, seal)
        self.line.meet(0.0)
        self.line.ask(wire.SETTLED, asked, timeout=min(60.0, self._bounds.timeout))
        traffic = [asdict(one) for one in self.line.traffic]
        RunFolder(self._folder.curator).write_json(TRAFFIC, traffic)

    # Asking

    def _begin(self, environment: Environment, manifest: JobManifest) -> None:
        self._names = [str(name) for name in environment.population.names]
        self._job = manifest.job
        self._line = Line(self._grid, self._names, manifest.job, self._bounds)
        path = self._folder.curator / LEFT_OUT
        if path.exists():
            self._left_out = dict(json.loads(path.read_text(encoding="utf-8")))

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
        while waiting := [index for index in left if tries[index] < _TRIES]:
            self.line.declined.clear()
            here = [index for index in self.line.meet(0.0) if index in waiting]
            replies = self.line.ask(kind, {self._names[index]: left[index] for index in here})
            for index in here:
                name = self._names[index]
                if name in replies and take(index, replies[name]):
                    del left[index]
                elif name in replies or name in self.line.declined:
                    tries[index] += 1
                    why[index] = self.line.declined.get(name, "unusable answers")
            end = min(end, time.monotonic() + self._bounds.wait)
            if not left or time.monotonic() > end:
                break
            time.sleep(0.5)
        if leave_out and left:
            for index in left:
                self._left_out[self._names[index]] = f"{kind.removeprefix('query.')}: {why[index]}"
            RunFolder(self._folder.curator).write_json(LEFT_OUT, self._left_out)
        return sorted(left)


class _Replies:
    """All replies that came, on disk: enough to have the curator's players where they were."""

    def __init__(
        self, path: Path, table: GameRules, names: Sequence[str], payoffs: NDArray[np.float64]
    ) -> None:
        self._path = path
        game = json.dumps([table.to_dict(), list(names)], sort_keys=True)
        self._game = hashlib.sha256(game.encode() + payoffs.tobytes()).hexdigest()
        self._length, self._iterations = table.interactions_per_message, table.iterations
        self._replies: dict[str, Any] = {}
        if not path.exists():
            return
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                same = str(kept["game"]) == self._game
                self._replies = {name: kept[name] for name in kept.files if name != "game"}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as problem:
            raise BadInput("replies", str(path), f"cannot be read ({problem}).") from None
        if not same:
            raise BadInput("replies", str(path), "are of another game: restore its scenario.")

    def replay(self, index: int, player: CuratorPlayer) -> None:
        """Have a player learn from what came before."""
        offers = self._replies.get(f"offers.{index}", np.zeros(0, np.int64))
        signed = self._replies.get(f"signed.{index}", np.zeros(0, bool))
        while player.played < len(offers):
            length = min(self._length, self._iterations - player.played)
            part = slice(player.played, player.played + length)
            player.draw_quotes(length)
            player.take(OfferBatch(player.played, offers[part], signed[part]))

    def add(self, index: int, reply: OfferBatch) -> None:
        """Take in one more reply."""
        for name, more in (("offers", reply.offers), ("signed", reply.signed)):
            before = self._replies.get(f"{name}.{index}", more[:0])
            self._replies[f"{name}.{index}"] = np.concatenate([before, more])

    def save(self) -> None:
        """On disk when this returns."""
        save_arrays(self._path, game=self._game, **self._replies)
