"""DyPP: both sides of every pair learn, by WoLF-PHC, until they settle on a deal.

The paper's benchmarks, two-layer Q-learning and greedy, are the same game under another rule. No
learner sees more than its own rewards and the moves of the other side. ``rule.py`` says what a rule
is; ``learning.py`` has the rules and the loop that plays them, compiled; here a rule of one's own
is played by the same loop in plain Python.

As printed, DyPP does not recover when preferences change: its steps have shrunk and its policies
are pure by then. With ``learning.reopen`` an owner starts its tables anew when its own numbers
change. The curator is not told: it starts a pair anew when a fast and a slow average of the owner's
proposals are far apart (``learning.has_moved``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from noisemarket.errors import Interrupted
from noisemarket.game.environment import Contracts, Environment, Games
from noisemarket.game.exploitability import Exploitability, exploitability
from noisemarket.game.levels import BoolArray, FloatArray, IntArray, KeyArray
from noisemarket.pricing.asker import ArrayAsker
from noisemarket.pricing.mechanism import (
    Agreement,
    Mechanism,
    PlayConfig,
    Progress,
    RunOptions,
    Trace,
)
from noisemarket.pricing.messages import game_rules, play_by_quotes, usual_deal
from noisemarket.pricing.rule import (
    DEALS,
    PAYMENTS,
    PROPOSALS,
    QUOTES,
    RULES,
    SAVINGS,
    CompiledRule,
    Rule,
    Settings,
    Stream,
    compiled_functions,
    find_rule,
    seeds,
)

if TYPE_CHECKING:  # Numba is slow to import, and most markets do not learn
    from noisemarket.pricing.learning import Batch, GameArrays, LoopSettings

Result = TypeVar("Result")

POLICIES_KEPT_UP_TO = 20_000_000
"""Table cells of all owners up to which final policies are kept, 16 bytes each."""

MESSAGES_IN_A_GAME = 8
"""Messages to an owner in a game by messages, where the scenario does not say how many."""

_WORK_PER_BATCH = {True: 4_000_000, False: 20_000}  # pair-iterations, compiled and plain
_CELLS_PER_BATCH = 1_000_000
_LARGEST_BATCH = 512


class Learned(Mechanism):
    """Lets a learning rule play both sides of every pair."""

    def __init__(self, rule: str | type[Rule]) -> None:
        self.rule = rule

    @property
    def name(self) -> str:
        return self.rule if isinstance(self.rule, str) else self.rule.__name__

    def run(self, environment: Environment, options: RunOptions) -> Agreement:
        config, owners, asker = options.play, len(environment), options.asker
        compiled = is_compiled(self.rule)
        if asker is None and config.interactions_per_message > 1 and not compiled:
            asker = ArrayAsker(environment, config.seed)
        if asker is not None:
            rules = game_rules(environment, self.rule, config, messages_of(config))
            return play_by_quotes(environment, rules, asker, options)
        compiled_functions()  # imported here, before threads want it
        savings, payments = environment.levels.shape
        cells = savings * payments
        keep = owners * cells <= POLICIES_KEPT_UP_TO
        gaps = np.full((2, owners), np.nan)
        kept: list[Batch] = []
        slices = batches(owners, config.iterations, cells, compiled=compiled)
        totals = PlayTotals(environment, options)
        cancelled = np.zeros(1, np.bool_)
        work = work_through(
            slices,
            lambda some: self._play(environment, config, some, cancelled),
            options.threads,
            options.stop,
            lambda: cancelled.fill(True),
        )
        with closing(work):
            for some, (batch, agreed, gap) in work:
                gaps[:, some] = gap.owner, gap.curator
                if keep:
                    kept.append(batch)
                totals.enter(some, agreed, batch)
        return Agreement(
            contracts=totals.contracts,
            done=totals.done,
            trace=totals.trace(),
            owner_exploitability=gaps[0],
            curator_exploitability=gaps[1],
            owner_policies=_stack([batch.owner_policies for batch in kept]),
            curator_policies=_stack([batch.curator_policies for batch in kept]),
            messages=float(-(-config.iterations // config.interactions_per_message)),
        )

    def _play(
        self,
        environment: Environment,
        config: PlayConfig,
        some: slice,
        cancelled: BoolArray,
    ) -> tuple[Batch, Contracts, Exploitability]:
        """A batch, with what is computed from its policies before they are dropped."""
        phases = [environment.games(i, some) for i in range(len(environment.phases))]
        starts = [phase.start for phase in environment.phases]
        keys = environment.population.key[some]
        sides = [environment.owner_side(i, some) for i in range(len(environment.phases))]
        changed = np.stack([one.differs(sides[max(i - 1, 0)]) for i, one in enumerate(sides)], 1)
        batch = play_batch(self.rule, config, phases, starts, keys, cancelled, changed)
        if cancelled[0]:
            raise Interrupted("cancelled.")
        now = sum(start < config.iterations for start in starts) - 1
        gap = exploitability(
            batch.owner_policies,
            batch.curator_policies,
            phases[now],
            batch.last,
            config.settings.discount,
        )
        return batch, Contracts.of(phases[now], *batch.deals.T), gap


def messages_of(config: PlayConfig) -> int:
    """Interactions in one message; where the scenario does not say, a game has 8 messages."""
    if config.interactions_per_message > 1:
        return config.interactions_per_message
    return max(2, -(-config.iterations // MESSAGES_IN_A_GAME))


def _stack(policies: list[FloatArray]) -> FloatArray | None:
    return np.concatenate(policies) if policies else None


def first_values(
    kind: type[Rule], games: Games, config: PlayConfig
) -> tuple[FloatArray, FloatArray]:
    """Both sides' first Q-values: tables over (state, action), one per pair.

    A side that starts from ``optimism`` times the best payoff it can conceive tries every action
    before it settles; one that starts from 0 may lock into whatever it tried first.
    """

    def of(hopes: FloatArray) -> FloatArray:
        best = hopes.max(axis=(1, 2), keepdims=True)
        return np.ascontiguousarray(kind.first_values(hopes, config.optimism * best))

    return of(games.owner_hopes.swapaxes(1, 2)), of(games.curator_hopes)


def is_compiled(rule: str | type[Rule]) -> bool:
    """Whether the compiled loop plays a rule, rather than plain Python."""
    return find_rule(rule) in RULES.values()


def play_batch(
    rule: str | type[Rule],
    config: PlayConfig,
    phases: Sequence[Games],
    starts: Sequence[int],
    keys: KeyArray,
    cancelled: BoolArray | None = None,
    changed: BoolArray | None = None,
) -> Batch:
    """Play the games of some owners; phase i holds from iteration ``starts[i]`` on.

    ``changed[owner, i]`` says that the owner's own preferences are others than in the phase before.
    Another thread may set ``cancelled[0]`` to end the play soon; the batch is then worth nothing.
    """
    from noisemarket.pricing.learning import Batch, GameArrays, LoopSettings, play_all

    kind = find_rule(rule)
    live = [i for i, start in enumerate(starts) if start < config.iterations]
    firsts = [first_values(kind, phases[i], config) for i in live]
    nobody = np.zeros((len(keys), len(phases)), np.bool_)
    bounds = np.array([*(starts[i] for i in live), config.iterations], dtype=np.int64)
    ended = np.zeros(1, np.bool_) if cancelled is None else cancelled
    games = GameArrays(
        keys=np.ascontiguousarray(keys),
        starts=bounds,
        owner_rewards=np.stack([phases[i].owner_rewards for i in live], axis=1),
        curator_rewards=np.stack([phases[i].curator_rewards for i in live], axis=1),
        agreed=np.stack([phases[i].agreed for i in live], axis=1),
        owner_first=np.stack([owner for owner, _ in firsts], axis=1),
        curator_first=np.stack([curator for _, curator in firsts], axis=1),
        changed=np.ascontiguousarray((nobody if changed is None else changed)[:, live]),
    )
    per_message = config.interactions_per_message
    by_messages = per_message > 1
    owner_seed, curator_seed = seeds(config.seed) if by_messages else (config.seed,) * 2
    settings = LoopSettings(
        sees_proposal=phases[0].sees_proposal,
        owner_seed=np.uint64(owner_seed),
        curator_seed=np.uint64(curator_seed),
        trace_every=config.trace_every,
        window=int(min(config.window, bounds[-1] - bounds[-2])),
        per_message=per_message if by_messages else 0,
        reopen=config.settings.reopen and kind.reopens,
    )
    pairs, _, savings, payments = games.owner_rewards.shape
    output = Batch(
        counts=np.zeros((config.blocks, 5), np.int64),
        payoffs=np.zeros((config.blocks, 2)),
        deals=np.zeros((pairs, 2), np.int64),
        last=np.zeros((pairs, 2), np.int64),
        owner_policies=np.empty((pairs, payments, savings)),
        curator_policies=np.empty((pairs, savings, payments)),
    )
    if config.compiled and is_compiled(kind) and issubclass(kind, CompiledRule):
        play_all(kind.numbers(config.settings), games, settings, output, ended)
        return output
    for n in range(pairs):
        _play_pair(kind, config.settings, games, settings, n, output, ended)
        if ended[0]:
            break
    return output


def _play_pair(
    kind: type[Rule],
    numbers: Settings,
    games: GameArrays,
    settings: LoopSettings,
    n: int,
    output: Batch,
    cancelled: BoolArray,
) -> None:
    """``learning.play_all`` for one pair of players in plain Python, one interaction at a time."""
    from noisemarket.pricing.learning import has_moved

    owner = kind(games.owner_first[n, 0], numbers)
    curator = kind(games.curator_first[n, 0], numbers)
    owner_since, curator_since = 0, 0  # when each side started its tables
    averages = np.full((2, games.owner_rewards.shape[2]), 1.0 / games.owner_rewards.shape[2])
    for_owner = Stream(int(settings.owner_seed), int(games.keys[n]))
    for_curator = Stream(int(settings.curator_seed), int(games.keys[n]))
    starts, iterations = games.starts, int(games.starts[-1])
    moves = np.zeros((iterations, 2), np.int64)
    rewards = np.zeros((iterations, 2))
    phase = np.searchsorted(starts, np.arange(iterations), side="right") - 1
    proposal, quote, state = 0, 0, 0
    for t in range(iterations + 1):
        if settings.reopen and t in starts[1:-1] and games.changed[n, phase[t]]:
            owner, owner_since = kind(games.owner_first[n, phase[t]], numbers), t
        last, proposal = proposal, owner.act(quote, for_owner.for_owner())
        before, state = state, proposal if settings.sees_proposal else last
        if t > 0:
            curator.learn(before, quote, float(rewards[t - 1, 1]), state, t - 1 - curator_since)
        if t == iterations or cancelled[0]:
            break
        if settings.reopen and has_moved(averages, proposal, t - curator_since):
            curator, curator_since = kind(games.curator_first[n, phase[t]], numbers), t
        heard, quote = quote, curator.act(state, for_curator.for_curator())
        outcome = n, phase[t], proposal, quote
        moves[t] = proposal, quote
        rewards[t] = games.owner_rewards[outcome], games.curator_rewards[outcome]
        owner.learn(heard, proposal, float(rewards[t, 0]), quote, t - owner_since)
    _record(output, n, moves, rewards, games.agreed[n][phase, *moves.T], settings)
    output.owner_policies[n], output.curator_policies[n] = owner.policy(), curator.policy()


def _record(
    output: Batch,
    n: int,
    moves: IntArray,
    rewards: FloatArray,
    agreed: BoolArray,
    settings: LoopSettings,
) -> None:
    """Enter one pair's history into a batch, as the compiled loop does while it plays."""
    saving, payment = moves.T
    block = np.arange(len(moves)) // settings.trace_every
    signed = agreed & (saving + payment > 0)
    for column, series in (
        (PROPOSALS, saving),
        (QUOTES, payment),
        (SAVINGS, saving * agreed),
        (PAYMENTS, payment * agreed),
        (DEALS, signed),
    ):
        np.add.at(output.counts[:, column], block, series)
    np.add.at(output.payoffs, block, rewards)
    output.last[n] = moves[-1]
    output.deals[n] = usual_deal(np.column_stack([moves, agreed])[-settings.window :])


# Batches of owners on several threads, and sums over them


def batches(owners: int, iterations: int, cells: int, *, compiled: bool = True) -> list[slice]:
    """Divide the owners into batches of some tenths of a second and some tens of megabytes each.

    ``cells`` is the size of a payoff table. The cut depends on nothing but these numbers, so that
    sums over batches come out the same with any number of threads.
    """
    by_work = _WORK_PER_BATCH[compiled] // iterations
    by_memory = _CELLS_PER_BATCH // cells
    size = max(1, min(_LARGEST_BATCH, by_work, by_memory, -(-owners // 16)))
    return [slice(at, min(at + size, owners)) for at in range(0, owners, size)]


def work_through(
    parts: list[slice],
    work: Callable[[slice], Result],
    threads: int,
    stop: Callable[[], bool] = lambda: False,
    cancel: Callable[[], None] = lambda: None,
) -> Generator[tuple[slice, Result], None, None]:
    """Do ``work`` on every part; yields each part with its result, in the order of the parts.

    When ``stop`` returns True no new part is begun, and those that run are still finished and
    yielded. When an error ends this, or the consumer does (``close``), ``cancel`` is called: it has
    the running parts end soon, because nobody wants them.
    """
    waiting = iter(parts)
    running: list[tuple[slice, Future[Result]]] = []
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="noisemarket") as pool:
        try:
            while True:
                while len(running) < 2 * threads and not stop():
                    if (some := next(waiting, None)) is None:
                        break
                    running.append((some, pool.submit(work, some)))
                if not running:
                    return
                if wait([running[0][1]], timeout=0.2).done:
                    some, future = running.pop(0)
                    yield some, future.result()
                if stop():
                    running = [one for one in running if not one[1].cancel()]
        except BaseException:
            cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class PlayTotals:
    """The contracts of the batches that are finished, and sums of their counts and payoffs."""

    def __init__(self, environment: Environment, options: RunOptions) -> None:
        owners, blocks = len(environment), options.play.blocks
        self._levels, self._options = environment.levels, options
        self.contracts, self.done = Contracts.same(owners, 0, 0), np.zeros(owners, dtype=bool)
        self._counts, self._payoffs = np.zeros((blocks, 5), np.int64), np.zeros((blocks, 2))

    def enter(self, some: slice, agreed: Contracts, batch: Batch) -> None:
        self.contracts.saving[some], self.contracts.payment[some] = agreed.saving, agreed.payment
        self.contracts.signed[some], self.done[some] = agreed.signed, True
        self._counts += batch.counts
        self._payoffs += batch.payoffs
        done = int(self.done.sum())
        self._options.watch(Progress(some, agreed, done, len(self.done), self.trace))

    def trace(self) -> Trace | None:
        """The means over the owners that are finished by now."""
        owners = int(self.done.sum())
        if owners == 0:
            return None
        counts, payoffs = self._counts, self._payoffs
        play = self._options.play
        ends = np.minimum(np.arange(1, play.blocks + 1) * play.trace_every, play.iterations)
        plays = np.diff(ends, prepend=0) * owners
        saving_step, payment_step = self._levels.savings[1], self._levels.payments[1]
        return Trace(
            iteration=ends,
            saving=counts[:, SAVINGS] / plays * saving_step,
            payment=counts[:, PAYMENTS] / plays * payment_step,
            proposal=counts[:, PROPOSALS] / plays * saving_step,
            quote=counts[:, QUOTES] / plays * payment_step,
            signed_share=counts[:, DEALS] / plays,
            owner_reward=payoffs[:, 0] / plays,
            curator_reward=payoffs[:, 1] / plays,
        )
