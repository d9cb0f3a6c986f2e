"""What a round of the default model costs in CPU seconds, beside NumPy and PyTorch in one run.

    python -m benchmarks engine            the round beside its peers, and 1,000 owners
    python -m benchmarks engine --owners 1000 10000
    python -m benchmarks engine --quick    tiny sizes: shows that everything runs, no more

100 owners with 600 MNIST images each, features and protection as in the ``market`` preset: every
record's gradient is clipped. All take turns in one process on one thread; a figure is the least of
all turns. Peers draw noise that is not secure, and neither keep an account nor test the model. With
many owners, who hold the same images again, two worker processes train: their CPU seconds and this
process's are added. The table goes into benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy

import numpy as np
import psutil

from benchmarks.peers.task import Task, load, shares
from benchmarks.results_page.common import RESULTS
from noisemarket.federated.engine import Engine, Job
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.partition import Partition
from noisemarket.federated.protections import PerRecord
from noisemarket.federated.rounds import RoundResult, State, TrainingPlan, train
from noisemarket.machine import Effort
from noisemarket.market.local_engine import LocalEngine, SerialEngine
from noisemarket.privacy.accountant import Accountant
from noisemarket.privacy.noise import SecureNoise
from noisemarket.privacy.zcdp import Neighbours

SIGMA, SERVER_RATE, WORKERS = 0.6, 6.0, 2
PROTECTION = PerRecord()
CLIP, RATE = PROTECTION.clip, PROTECTION.rate
IMAGES = 60_000


def job_of(owners: int, each: int) -> Job:
    """Equal parts; where there are more owners than images for them, images are held again."""
    distinct = min(owners, IMAGES // each)
    task = Task(owners=distinct, each=each)
    parts, data = shares(task), load(task).with_features()
    indices = tuple(parts[owner % distinct] for owner in range(owners))
    assert data.features is not None
    model = LinearMaker(10, data.features.dimension)
    partition = Partition(indices, np.full((owners, 10), 0.1))
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
    torch.set_num_threads(1)
    weights = torch.zeros(start.shape)
    tensors = [(torch.tensor(features), torch.tensor(marks)) for features, marks in own]

    def torch_batched() -> object:
        mean = torch.zeros_like(weights)
        for features, marks in tensors:
            wrong = torch.softmax(features @ weights.T, 1) - torch.eye(10)[marks]
            steps = -RATE * torch.bmm(wrong[:, :, None], features[:, None, :])
            shares = torch.clamp(CLIP / steps.flatten(1).norm(dim=1), max=1.0)
            mean += (steps * shares[:, None, None]).mean(0) + SIGMA * torch.randn_like(mean)
        return mean

    def torch_norms() -> object:
        mean = torch.zeros_like(weights)
        for features, marks in tensors:
            wrong = torch.softmax(features @ weights.T, 1) - torch.eye(10)[marks]
            lengths = RATE * wrong.norm(dim=1) * features.norm(dim=1)
            shares = torch.clamp(CLIP / lengths, max=1.0)
            mean -= RATE / len(marks) * (wrong * shares[:, None]).T @ features
            mean += SIGMA * torch.randn_like(mean)
        return mean

    found[f"PyTorch {torch.__version__}, an owner's steps as one array"] = torch_batched
    found["the same, norms without forming the steps"] = torch_norms
    return found


def contest(job: Job, turns: int) -> dict[str, float]:
    """The least CPU seconds of a round, everybody in turns."""
    whole, bare = SerialEngine(job), SerialEngine(job)
    rounds, first, owners = rounds_of(job, whole), bare.first_weights(), range(len(job))
    contestants: dict[str, Callable[[], object]] = {
        "noisemarket, whole round": lambda: next(rounds),
        "noisemarket, training only": lambda: bare.train(1, first, owners),
        **peers(job),
        "secure noise of all owners (part of ours)": lambda: [
            SecureNoise().gaussians(first.size) for _ in owners
        ],
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=15, help="rounds of each contestant")
    parser.add_argument("--owners", type=int, nargs="*", default=[1000], help="sizes with workers")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only to see that it runs")
    options = parser.parse_args()
    effort, owners, each = Effort(), *((4, 60) if options.quick else (100, 600))
    turns, sizes = (2, [8]) if options.quick else (options.turns, options.owners)
    spent = contest(job_of(owners, each), turns)
    grown = {str(size): many(size, each, max(2, turns // 5)) for size in sizes}
    found = {"rounds": spent, "many": grown, "command": "python -m benchmarks engine"}
    for name, seconds in (spent | grown).items():
        print(f"{name:60} {seconds:.4f} CPU s")
    if not options.quick:
        path = RESULTS / "engine.json"
        path.write_text(json.dumps(effort.as_dict() | found, indent=1) + "\n", encoding="utf-8")
        print(f"Stored: {path}. python -m benchmarks report writes the table.")


if __name__ == "__main__":
    main()
