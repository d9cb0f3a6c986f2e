"""What a round, a start and the demo cost, beside peers in one run.

    python -m benchmarks engine                          all of the table
    python -m benchmarks engine --only many --owners 100000
    python -m benchmarks engine --quick                  tiny sizes: shows that everything runs

**rounds**: 100 owners with 600 MNIST images each, features and protection as in the ``market``
preset: every record's step is clipped. All take turns in one process on one thread; a figure is the
least CPU seconds of all turns. Peers draw noise that is not secure, and neither keep an account nor
test the model. Flower's simulation runs with two actors: their CPU seconds and its own are added.
**many**: many owners, who hold the same images again; CPU seconds of two workers and the main
process together. **pairs**: the curator's comparison of all uploads of a round. **starts**: user
seconds of commands from bytecode, as pip leaves it, the least of several. **demo**: CPU seconds and
peak memory of ``noisemarket run``. **clipping**: a step of the CNN with every record clipped,
beside Opacus where it is installed (see "What they need" in benchmarks/README.md).
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # commands start from bytecode, as after pip

import numpy as np
import psutil

import noisemarket
from benchmarks.federated import MALLOC
from benchmarks.peers.task import Task, load, shares
from benchmarks.process_tree import ProcessTree
from benchmarks.results_page.common import RESULTS
from noisemarket.federated.engine import Engine, Job
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import PerRecord
from noisemarket.federated.rounds import RoundResult, State, TrainingPlan, train
from noisemarket.machine import Effort
from noisemarket.market.training import LocalEngine, SerialEngine
from noisemarket.privacy.accountant import Accountant
from noisemarket.privacy.noise import SecureNoise
from noisemarket.privacy.noise_check import SKETCH_BITS, alike
from noisemarket.privacy.zcdp import Neighbours

SIGMA, SERVER_RATE, WORKERS = 0.6, 6.0, 2
PROTECTION = PerRecord()
CLIP, RATE = PROTECTION.clip, PROTECTION.rate
IMAGES = 60_000
SECURE_NOISE = "secure noise of all owners (part of ours)"


def job_of(owners: int, each: int) -> Job:
    """Equal parts; where there are more owners than images for them, images are held again."""
    distinct = min(owners, IMAGES // each)
    task = Task(owners=distinct, each=each)
    parts, data = shares(task), load(task).with_features()
    indices = tuple(parts[owner % distinct] for owner in range(owners))
    assert data.features is not None
    model = LinearMaker(10, data.features.dimension)
    partition = Partition(indices)
    return Job(data, partition, model, PROTECTION, np.full(owners, SIGMA), seed=1)


def rounds_of(job: Job, engine: Engine) -> Iterator[RoundResult]:
    """Whole rounds: account, training, screening, mean, and two models tested."""
    state = State.first(engine.first_weights())
    plan = TrainingPlan(10**6, np.ones(len(job)), averaging=0.8, rate=SERVER_RATE)
    budgets = [
        PROTECTION.budget(owner, SIGMA, dimension=len(state.weights), records=int(held),
                          neighbours=Neighbours.REPLACE_ONE, delta=1e-5)
        for owner, held in enumerate(job.partition.sizes)
    ]  # fmt: skip
    return train(engine, job, Accountant(budgets), plan, state)


def peers(job: Job) -> dict[str, Callable[[], object]]:
    """A round of training and mean each, from a model of zeros."""
    inputs, labels = job.data.train_inputs(), job.data.train_labels
    own = [(inputs[part], labels[part]) for part in job.partition.indices]
    start, rng = np.zeros((10, inputs.shape[1]), np.float32), np.random.default_rng(1)

    def residuals(features: np.ndarray, marks: np.ndarray) -> np.ndarray:
        chances = np.exp(features @ start.T)
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(marks)), marks] -= 1.0
        return chances

    def numpy_loop() -> object:
        mean = np.zeros_like(start)
        for features, marks in own:
            steps = -RATE * residuals(features, marks)[:, :, None] * features[:, None, :]
            lengths = np.sqrt(np.square(steps).sum(axis=(1, 2)))
            steps *= np.minimum(1.0, CLIP / lengths)[:, None, None]
            mean += steps.mean(axis=0) + SIGMA * rng.standard_normal(start.shape, np.float32)
        return mean

    def products() -> object:
        return [(start @ features.T) @ features for features, _ in own]

    found: dict[str, Callable[[], object]] = {
        "two matrix products per owner alone (the limit)": products,
        "NumPy, an owner's steps as one array": numpy_loop,
    }
    try:
        import torch
    except ModuleNotFoundError:
        return found
    from benchmarks.peers import linear_loop

    torch.set_num_threads(1)
    weights = torch.zeros(start.shape)
    tensors = [(torch.tensor(features), torch.tensor(marks)) for features, marks in own]
    for name, steps in (
        ("steps as one array", "batched"),
        ("norms without forming steps", "norms"),
    ):
        step = linear_loop.STEPS[steps]
        found[f"PyTorch {torch.__version__}, {name}"] = partial(
            linear_loop.round_of, step, weights, tensors
        )
    return found


def contest(job: Job, turns: int) -> dict[str, float]:
    """The least CPU seconds of a round, everybody in turns."""
    whole, bare = SerialEngine(job), SerialEngine(job)
    rounds, first, owners = rounds_of(job, whole), bare.first_weights(), range(len(job))
    contestants: dict[str, Callable[[], object]] = {
        "noisemarket, whole round": lambda: next(rounds),
        "noisemarket, training only": lambda: bare.train(1, first, owners),
        **peers(job),
        SECURE_NOISE: lambda: [SecureNoise().gaussians(first.size) for _ in owners],
    }
    spent = dict.fromkeys(contestants, float("inf"))
    for _ in range(turns):
        for name, play in contestants.items():
            start = time.process_time()
            play()
            spent[name] = min(spent[name], time.process_time() - start)
    return spent


def many(owners: int, each: int, turns: int) -> float:
    """CPU seconds of a whole round of this process and its workers together, the least."""
    job = job_of(owners, each)
    with LocalEngine(job, WORKERS) as engine:
        rounds = rounds_of(job, engine)
        processes = [psutil.Process(), *psutil.Process().children()]

        def used() -> float:
            return sum(sum(one.cpu_times()[:2]) for one in processes)

        next(rounds)  # records are laid out, and workers have imported all
        spent = []
        for _ in range(turns):
            start = used()
            next(rounds)
            spent.append(used() - start)
    return min(spent)


def flower(owners: int, each: int) -> float:
    """CPU seconds of a round of Flower's simulation, the least of the rounds after the first."""
    tree, task = ProcessTree(), json.dumps({"owners": owners, "each": each, "rounds": 4})
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    command, seen = [sys.executable, "-m", "benchmarks.peers.linear_flower", task], []
    with tempfile.TemporaryDirectory() as home, subprocess.Popen(
        command, env=os.environ | quiet | {"FLWR_HOME": home},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        seen = [tree.cpu() for line in run.stdout if line.startswith('@{"round"')]
    if len(seen) < 4:
        raise SystemExit("Flower's simulation failed: install the extra flower-simulation.")
    return min(later - sooner for sooner, later in pairwise(seen))


def starts(turns: int) -> dict[str, float]:
    """User seconds of commands, the least of several; of the first with an empty cache once."""
    clock = ["negotiate", "--mechanism", "clock"]
    commands = {
        "noisemarket --help": ["--help"],
        "negotiate, clock auction": clock,
        "negotiate --json, clock auction": [*clock, "--json"],
        "negotiate, DyPP": ["negotiate"],
    }

    compileall.compile_dir(noisemarket.__path__[0], quiet=1)

    def spent(words: list[str], cache: str, scratch: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(
            [sys.executable, "-m", "noisemarket", *words], cwd=scratch, check=True,
            env=os.environ | {"NUMBA_CACHE_DIR": cache}, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as scratch:
        found = {"negotiate, DyPP, nothing compiled yet": spent(["negotiate"], cache, scratch)}
        for name, words in commands.items():
            found[name] = min(spent(words, cache, scratch) for _ in range(turns))
    return found


def demo() -> dict[str, float]:
    """CPU seconds and peak memory of the demo's job, with what it compiles already compiled."""
    tree, peak = ProcessTree(), 0.0
    with tempfile.TemporaryDirectory() as scratch:
        words = ["run", "--json", "--out", f"{scratch}/demo"]
        before, command = tree.cpu(), [sys.executable, "-m", "noisemarket", *words]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
            while run.poll() is None:
                peak = max(peak, tree.memory())
                time.sleep(0.2)
        return {"CPU seconds": tree.cpu() - before, "peak GB": peak / 1000.0}


def clipping() -> dict[str, float] | str:
    """CPU seconds of a batch of 64 records of the CNN, each clipped; or why there are none."""
    if find_spec("opacus") is None:
        return "Opacus is not installed in this environment"
    task = json.dumps({"options": {"batches": "8", "turns": "5"}})
    command = [sys.executable, "-m", "benchmarks.peers.clipping", task]
    tuned = os.environ | {"GLIBC_TUNABLES": MALLOC}  # as in our workers; it helps Opacus, too
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=tuned)
    said = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")]
    name = f"Opacus {version('opacus')}"
    return {
        f"{'noisemarket' if who == 'ours' else f'{name}, {who}'}, {one['network']}": seconds
        for one in said
        for who, seconds in one["seconds"].items()
    }


def pairs(owners: int, turns: int) -> dict[str, float]:
    """CPU seconds of the curator's comparison of two sketches; a round of many has all pairs."""
    uploads = np.random.default_rng(1).standard_normal((owners, SKETCH_BITS)).astype(np.float32)
    spent = []
    for _ in range(turns):
        start = time.process_time()
        assert not list(alike(uploads, np.full(owners, CLIP / SIGMA), 1e-12))
        spent.append(time.process_time() - start)
    return {"owners": owners, "seconds a pair": min(spent) / (owners * (owners - 1) / 2)}


PARTS = ("rounds", "many", "pairs", "starts", "demo", "clipping")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=15, help="rounds of each contestant")
    sizes = [1000, 10_000]
    parser.add_argument("--owners", type=int, nargs="*", default=sizes, help="sizes with workers")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS, help="parts to measure")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only to see that it runs")
    options = parser.parse_args()
    effort, owners, each = Effort(), *((4, 60) if options.quick else (100, 600))
    turns, sizes = (2, [8]) if options.quick else (options.turns, options.owners)

    def rounds() -> dict[str, float]:
        found = contest(job_of(owners, each), turns)
        if find_spec("ray") is not None:
            found[f"Flower {version('flwr')}, simulation, NumPy client"] = flower(owners, each)
        return found

    measures: dict[str, Callable[[], dict[str, float] | str]] = {
        "rounds": rounds,
        "many": lambda: {str(size): many(size, each, max(2, turns // 5)) for size in sizes},
        "pairs": lambda: pairs(100 if options.quick else 4096, 2),
        "starts": lambda: starts(max(2, turns // 4)),
        "demo": demo,
        "clipping": clipping,
    }
    path = RESULTS / "engine.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for part in options.only:
        found = measures[part]()
        before = kept.get(part, {}) if part == "many" else {}
        kept[part] = found if isinstance(found, str) else before | found
        print(part, json.dumps(kept[part], indent=1))
    if not options.quick:
        kept |= effort.as_dict() | {"command": "python -m benchmarks engine"}
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(f"Stored: {path}. python -m benchmarks report writes the table.")


if __name__ == "__main__":
    main()
