"""How accurate and how fast training on fixed features is: one script, ratios within one run.

    python -m benchmarks features    runs all (40 minutes)
    python -m benchmarks features --markdown FILE    also writes the tables, ready to paste
    python -m benchmarks features --accuracy    accuracy only; needs no peers
    python -m benchmarks features --speed    speed only
    python -m benchmarks features --quick    tiny sizes: shows that everything runs, no more

Accuracy: 100 owners, 30 rounds, the ``market`` preset as it is, simulated noise; mean and standard
deviation over seeds of the average of the models on the test images, for several betas and sigmas.
Fashion-MNIST is measured too where its folder is found (Debian: dataset-fashion-mnist).

Speed: 100 owners with 600 MNIST images each. Every contestant is a process of its own; they take
turns. Figures are medians over the rounds after the first, and over turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import noisemarket as nm
from benchmarks.federated import (
    Contestant,
    Run,
    contest,
    per_round,
    run,
    to_first,
    versions,
)
from noisemarket.machine import machine_in_words

FASHION = "/usr/share/datasets/fashion-mnist"
BETAS = (1.0, 0.1, 10.0)
SIGMAS = (0.6, 0.45, 0.3, 0.2, 0.1, 0.05, 0.0)
REQUIRED = {
    "MNIST": {0.6: 89.0, 0.3: 93.0, 0.1: 95.0, 0.0: 96.0},
    "Fashion-MNIST": {0.6: 72.0, 0.3: 76.0, 0.1: 79.0, 0.0: 80.0},
}
"""Accuracy in per cent that beta 1 should reach."""
MIXED = {
    "22 owners at 0.2": (22, 0.2),
    "8 at 0.05": (8, 0.05),
    "50 at 0.1": (50, 0.1),
    "20 at 0": (20, 0.0),
}
"""Contracts of which all others are at 0.6."""


@dataclass(frozen=True)
class Figure:
    """A measured figure beside what it should be."""

    what: str
    value: float
    target: float
    at_most: bool
    unit: str = "x"

    def row(self) -> str:
        """One row of the table of targets."""
        way = "at most" if self.at_most else "at least"
        good = self.value <= self.target if self.at_most else self.value >= self.target
        verdict = "not measured" if self.value != self.value else ("met" if good else "missed")
        unit = self.unit if self.unit == "x" else f" {self.unit}"
        shown = "-" if self.value != self.value else f"{self.value:.2f}{unit}"
        return f"| {self.what} | {shown} | {way} {self.target:g}{unit} | {verdict} |"


@dataclass(frozen=True)
class Size:
    """How much to measure."""

    owners: int = 100
    rounds: int = 30
    seeds: int = 3
    betas: tuple[float, ...] = BETAS
    sigmas: tuple[float, ...] = SIGMAS
    mixed: tuple[str, ...] = tuple(MIXED)
    speed_rounds: int = 6
    turns: int = 3
    many: tuple[int, ...] = (1_000, 10_000)


QUICK = Size(4, 2, 2, (1.0,), (0.6, 0.0), ("50 at 0.1",), 2, 1, (40,))


@dataclass
class Accuracy:
    """Accuracies of one row by sigma: one of each seed."""

    data: str
    beta: float
    by_sigma: dict[float, list[float]] = field(default_factory=dict)
    epsilons: dict[float, float] = field(default_factory=dict)


# --- accuracy ---------------------------------------------------------------------------------


def trained(
    data: nm.Dataset, size: Size, beta: float, sigma: float | list[float], seed: int, weighting: str
) -> nm.Training:
    """One job by the public interface."""
    scenario = nm.Scenario.from_preset(
        "market", owners=size.owners, beta=beta, rounds=size.rounds, seed=seed, noise="simulated",
        weighting=weighting,
    )  # fmt: skip
    return nm.train(scenario, sigma=sigma, data=data)


def reached(done: nm.Training) -> float:
    """The accuracy of what a job delivers: the average of its models."""
    averaged = done.rounds[-1].averaged
    return done.rounds[-1].score.accuracy if averaged is None else averaged.accuracy


def accuracies(sets: dict[str, nm.Dataset], size: Size) -> list[Accuracy]:
    """The tables of accuracy."""
    rows = []
    for name, data in sets.items():
        for beta in size.betas:
            row = Accuracy(name, beta)
            for sigma in size.sigmas:
                for seed in range(1, size.seeds + 1):
                    done = trained(data, size, beta, sigma, seed, "noise")
                    row.by_sigma.setdefault(sigma, []).append(reached(done))
                    row.epsilons[sigma] = done.statements[0].epsilon
                print(f"  {name}, beta {beta:g}, sigma {sigma:g}: {_spread(row.by_sigma[sigma])}",
                      flush=True)  # fmt: skip
            rows.append(row)
    return rows


def mixed(sets: dict[str, nm.Dataset], size: Size) -> list[str]:
    """What weights by noise make of contracts that differ, in rows of a table."""
    rows = []
    for label in size.mixed:
        few, low = MIXED[label]
        few = min(few, size.owners // 2)
        sigma = [low] * few + [0.6] * (size.owners - few)
        for name, data in sets.items():
            found: dict[str, list[float]] = {"noise": [], "data_size": [], "uniform": []}
            noise = share = 0.0
            for seed in range(1, size.seeds + 1):
                for weighting in ("noise", "data_size"):
                    done = trained(data, size, 1.0, sigma, seed, weighting)
                    found[weighting].append(reached(done))
                    if weighting == "noise":
                        weights = done.order.plan.shares
                        noise = nm.effective_noise(sigma, weights)
                        share = nm.effective_share(weights)
                done = trained(data, size, 1.0, noise, seed, "noise")
                found["uniform"].append(reached(done))
            shown = " | ".join(map(_spread, found.values()))
            rows.append(f"| {label}, others 0.6 | {noise:.3f} | {share:.2f} | {name} | {shown} |")
            print("  " + rows[-1], flush=True)
    return rows


def accuracy_tables(rows: Sequence[Accuracy], blends: Sequence[str], size: Size) -> str:
    """All of it in Markdown."""
    head = " | ".join(f"sigma {sigma:g}" for sigma in size.sigmas)
    out = [
        f"Test accuracy in per cent, {size.owners} owners, {size.rounds} rounds, simulated noise: "
        f"mean ± standard deviation of {size.seeds} seeds.", "",
        f"| | {head} |", "|---" * (1 + len(size.sigmas)) + "|",
    ]  # fmt: skip
    if rows:
        shown = (_epsilon(rows[0].epsilons[sigma]) for sigma in size.sigmas)
        out.append(f"| epsilon of one record, delta 1e-5 | {' | '.join(shown)} |")
    for row in rows:
        cells = " | ".join(_spread(row.by_sigma[sigma]) for sigma in size.sigmas)
        out.append(f"| {row.data}, beta {row.beta:g} | {cells} |")
        asked = REQUIRED[row.data] if row.beta == 1.0 else {}
        if asked:
            needed = " | ".join(f"{asked[s]:g}" if s in asked else "" for s in size.sigmas)
            out.append(f"| asked for | {needed} |")
    if blends:
        out += [
            "", "Contracts that differ, beta 1:", "",
            "| contracts | effective noise | effective share | data | weights by noise "
            "| by data size | all owners at the effective noise |",
            "|---|---|---|---|---|---|---|", *blends,
        ]  # fmt: skip
    return "\n".join(out) + "\n"


def accuracy_figures(rows: Sequence[Accuracy]) -> list[Figure]:
    """What was asked for, beside what was reached."""
    return [
        Figure(f"{row.data}, beta 1, sigma {sigma:g}", statistics.mean(row.by_sigma[sigma]), asked,
               at_most=False, unit="%")
        for row in rows if row.beta == 1.0
        for sigma, asked in REQUIRED[row.data].items() if sigma in row.by_sigma
    ]  # fmt: skip


def _spread(values: Sequence[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f} ± {deviation:.1f}"


def _epsilon(value: float) -> str:
    return "∞" if value == float("inf") else f"{value:.3g}"


# --- speed ------------------------------------------------------------------------------------

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
OURS = Contestant("features", "linear_ours", "noisemarket, features, 2 workers, secure noise")
CONTESTANTS = (
    OURS,
    Contestant("simulated", "linear_ours", "the same, simulated noise", {"noise": "simulated"}),
    Contestant("keyed", "linear_ours", "the same, noise under a key", {"noise": "keyed"}),
    Contestant("cnn", "linear_ours", "noisemarket, CNN, `sharded`, 2 workers", {"model": "cnn"}),
    Contestant(
        "loop", "linear_loop", "PyTorch, a loop over records, one thread", {"steps": "loop"},
        ONE_THREAD,
    ),
    Contestant(
        "batched", "linear_loop", "PyTorch, an owner's records at once, one thread",
        {"steps": "norms"}, ONE_THREAD,
    ),
    Contestant(
        "flower", "linear_flower", "Flower {flwr}, simulation on Ray, 2 actors, NumPy client",
        environment={**ONE_THREAD, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"},
    ),
    Contestant(
        "whole", "whole_round", "noisemarket, features, whole round", {"model": "features"}
    ),
    Contestant("whole-cnn", "whole_round", "noisemarket, CNN, whole round", {"model": "cnn"}),
)  # fmt: skip


@dataclass(frozen=True)
class Grown:
    """A round with many owners."""

    owners: int
    seconds: float
    peak_mb: float
    problem: str = ""


def grown(owners: int, rounds: int) -> Grown:
    """Time and memory in two runs, for looking at memory takes time."""
    task: dict[str, object] = {"owners": owners, "each": 600, "rounds": rounds}
    timed = run(OURS, task)
    watched = run(OURS, task, memory=True)
    problem = timed.problem or watched.problem
    return Grown(owners, per_round([timed]), watched.peak_mb, problem)


def speed_figures(runs: dict[str, list[Run]]) -> list[Figure]:
    """What is asked for."""
    return [
        Figure("a whole round, seconds", _ratio(runs, "whole"), 0.15, True, unit="s"),
        Figure(
            "a whole round, faster than the CNN's", _ratio(runs, "whole-cnn", "whole"), 20, False
        ),
        Figure("a round, faster than the CNN's", _ratio(runs, "cnn", "features"), 20, False),
    ]  # fmt: skip


def ratio_table(runs: dict[str, list[Run]]) -> str:
    """The other ratios."""
    rows = {
        "a round, faster than PyTorch's loop over records": ("loop", "features"),
        "a round, faster than PyTorch with an owner's records at once": ("batched", "features"),
        "a round, faster than Flower": ("flower", "features"),
        "secure noise, over simulated noise": ("features", "simulated"),
        "noise under a key, over simulated noise": ("keyed", "simulated"),
    }
    out = ["| ratio | measured |", "|---|---|"]
    for what, (first, second) in rows.items():
        value = _ratio(runs, first, second)
        out.append(f"| {what} | {'not measured' if value != value else f'{value:.2f}x'} |")
    return "\n".join(out) + "\n"


def _ratio(runs: dict[str, list[Run]], first: str, second: str = "") -> float:
    """Seconds of a round of one contestant, over another's if there is one."""
    took = float(per_round(runs.get(first, [])))
    return took / float(per_round(runs.get(second, []))) if second else took


def speed_tables(runs: dict[str, list[Run]], many: Sequence[Grown], size: Size) -> str:
    """All of it in Markdown."""
    ours = per_round(runs["features"])
    out = [
        f"{size.owners} owners with 600 images each, protection `sharded`. Seconds are wall clock; "
        "a round is training and mean, a whole round also account and two tests.", "",
        "| contestant | s a round | over ours | s to the first result | test accuracy, % |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for contestant in CONTESTANTS:
        made = runs.get(contestant.name, [])
        label = contestant.label.format(**versions())
        problem = next((one.problem for one in made if one.problem), "")
        if problem or not made:
            out.append(f"| {label} | not run: {problem or 'left out'} | | | |")
            continue
        accuracy = float(str(made[-1].value("accuracy")))
        out.append(
            f"| {label} | {per_round(made):.3f} | {per_round(made) / ours:.2f} | "
            f"{to_first(made):.1f} | {accuracy:.1f} |"
        )
    out += [
        "", f"Accuracy is that after {size.speed_rounds} rounds at sigma 0.6. With more owners, "
        "who hold the same images again:", "",
        "| owners x 600 | s a round | peak memory, GB |", "|---|---|---|",
    ]  # fmt: skip
    for one in many:
        shown = f"{one.seconds:.2f} | {one.peak_mb / 1000:.2f}"
        shown = f"not run: {one.problem} | " if one.problem else shown
        out.append(f"| {one.owners:,} | {shown} |")
    out += [
        "", "Memory is the peak sum of the proportional set sizes of all processes, in which "
        "shared memory counts once.",
    ]  # fmt: skip
    return "\n".join(out) + "\n"


def figure_table(figures: Sequence[Figure]) -> str:
    """What was measured beside what it should be."""
    rows = "\n".join(figure.row() for figure in figures)
    return f"| figure | measured | should be | |\n|---|---|---|---|\n{rows}\n"


# --- the whole --------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--accuracy", action="store_true", help="measure accuracy only")
    parser.add_argument("--mixed", action="store_true", help="accuracy of mixed contracts only")
    parser.add_argument("--speed", action="store_true", help="measure speed only")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only to see that it runs")
    parser.add_argument(
        "--fashion", metavar="FOLDER", default=FASHION, help="Fashion-MNIST's files"
    )
    parser.add_argument("--only", metavar="NAMES", help="contestants, by comma (features always)")
    parser.add_argument("--markdown", metavar="FILE", help="also write the tables to this file")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to this file")
    options = parser.parse_args()
    names = {contestant.name for contestant in CONTESTANTS}
    wanted = set(options.only.split(",")) | {"features"} if options.only else names
    if wanted - names:
        parser.error(f"contestants are {', '.join(sorted(names))}")
    both = options.accuracy == options.speed and not options.mixed
    size = QUICK if options.quick else Size()
    said = ", ".join(f"{name} {version}" for name, version in versions().items())
    parts = [f"Measured on {machine_in_words()}; {said}.\n"]
    report: dict[str, object] = {"machine": machine_in_words(), "versions": said}
    print(parts[0], flush=True)

    if both or options.accuracy or options.mixed:
        print("Accuracy", flush=True)
        sets = {"MNIST": nm.load_data()}
        if Path(options.fashion).is_dir():
            sets["Fashion-MNIST"] = nm.load_data(options.fashion)
        else:
            print(f"  Fashion-MNIST is left out: no folder {options.fashion}")
        if options.quick:
            sets = {name: _first(data, 600 * size.owners) for name, data in sets.items()}
        rows = [] if options.mixed else accuracies(sets, size)
        blends = mixed(sets, size)
        if rows:
            parts += [accuracy_tables(rows, blends, size), figure_table(accuracy_figures(rows))]
        report["accuracy"], report["mixed"] = [vars(row) for row in rows], blends

    if both or options.speed:
        print("Speed: seconds of each round", flush=True)
        chosen = [contestant for contestant in CONTESTANTS if contestant.name in wanted]
        task: dict[str, object] = {
            "owners": size.owners, "each": 600, "rounds": size.speed_rounds,
        }  # fmt: skip
        runs = contest(chosen, task, size.turns)
        print("Memory, and many owners", flush=True)
        many = [grown(owners, min(4, size.speed_rounds)) for owners in (size.owners, *size.many)]
        parts += [speed_tables(runs, many, size), ratio_table(runs)]
        parts += [figure_table(speed_figures(runs))]
        report["speed"] = {name: [vars(one) for one in made] for name, made in runs.items()}
        report["many"] = [vars(one) for one in many]

    text = "\n".join(parts)
    print("\n" + text)
    if options.quick:
        print("Sizes were tiny: none of these figures means anything.")
    if options.markdown:
        Path(options.markdown).write_text(text)
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n")


def _first(data: nm.Dataset, records: int) -> nm.Dataset:
    return nm.Dataset.of(
        data.train_images[:records], data.train_labels[:records], data.test_images[:500],
        data.test_labels[:500], name=data.name, scaling=data.scaling,
    )  # fmt: skip


if __name__ == "__main__":
    main()
