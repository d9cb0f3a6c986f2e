"""``noisemarket train``: federated training alone, under given contracts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from noisemarket.cli.common import Request, console, keep_scenario, progress, stoppable
from noisemarket.errors import BadInput, Interrupted
from noisemarket.federated.local import LocalEngine
from noisemarket.federated.training import Checkpoint, RoundResult, State, train
from noisemarket.privacy.journal import JournalledAccountant
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.report.training import draw_training, training_table
from noisemarket.runfolder import RunFolder
from noisemarket.scenario import load_scenario
from noisemarket.training import Order, one_sigma, order, read_contracts

METRICS, CHECKPOINT, JOURNAL = "metrics.jsonl", "checkpoint.npz", "privacy.journal"


def run(
    request: Request,
    contracts: str | None,
    sigma: float | None,
    resume: str | None,
    workers: int | None,
) -> None:
    """Train, then write the run folder and print the summary."""
    if workers is not None and workers < 1:
        raise BadInput("--workers", workers, "give at least 1.")
    if resume is not None:
        folder, request = _reopen(resume, request)
        scenario = load_scenario(folder.path / "scenario.toml")
        environment = scenario.environment()
        noise = read_contracts(str(folder.path / "contracts.csv"), environment)
        made = order(scenario, environment, noise)
    else:
        scenario = request.scenario()
        environment = scenario.environment()
        if (contracts is None) == (sigma is None):
            raise BadInput("--sigma", str(sigma), "give either --sigma or --contracts.")
        if sigma is not None:
            noise = one_sigma(sigma, len(environment), environment.levels.sigma_max)
        else:
            noise = read_contracts(str(contracts), environment)
        made = order(scenario, environment, noise)
        folder = request.folder(scenario, f"{scenario.preset}-train", contracts)
        keep_scenario(folder, scenario)
        names = environment.population.names
        rows = "".join(f"{name},{float(s)!r}\n" for name, s in zip(names, noise, strict=True))
        folder.write_text("contracts.csv", "owner,sigma\n" + rows)
    with folder:
        results, state, statements = _train(folder, made, workers)
        complete = state.round_number >= made.plan.rounds
        summary = _summary(results, statements, complete)
        folder.write_json("summary.json", summary)
        folder.write_json("statements.json", [_statement(one) for one in statements])
        np.savez(folder.path / "model.npz", weights=state.weights, averaged=state.averaged)
        figures = draw_training(folder, results, made.job.partition, made.job.data.train_labels)
        folder.status(
            "complete" if complete else "incomplete",
            rounds=made.plan.rounds,
            rounds_done=state.round_number,
            private=made.job.noise == "secure",
        )
    if not complete:
        raise Interrupted(
            f"stopped after {state.round_number} of {made.plan.rounds} rounds; go on with "
            f"--resume {folder.path}."
        )
    if request.json:
        print(json.dumps(summary, allow_nan=False))
        return
    out = console()
    out.print(training_table(results[-1], statements))
    out.print(f"Run folder: {folder.path}")
    pictures = ", ".join(str(path) for path in figures if path.suffix == ".png")
    out.print(f"Figures: {pictures}", soft_wrap=True)


def _reopen(resume: str, request: Request) -> tuple[RunFolder, Request]:
    path = Path(resume)
    if request.file or request.preset or request.settings or request.out:
        raise BadInput("--resume", resume, "give no scenario, setting or --out beside it.")
    for name in ("scenario.toml", "contracts.csv", JOURNAL):
        if not (path / name).is_file():
            raise BadInput("--resume", resume, f"is no training run: it has no {name}.")
    return RunFolder(path), request


def _train(
    folder: RunFolder, made: Order, workers: int | None
) -> tuple[list[RoundResult], State, list[PrivacyStatement]]:
    checkpoint = Checkpoint(folder.path / CHECKPOINT, made.fingerprint)
    state = checkpoint.load()
    before = state.results if state is not None else []
    folder.write_text(METRICS, "".join(json.dumps(asdict(one)) + "\n" for one in before))
    accountant = JournalledAccountant(folder.path / JOURNAL, made.budgets)
    with stoppable() as stop, progress("rounds") as bar, LocalEngine(made.job, workers) as engine:
        if state is None:
            first = engine.first_weights()
            state = State(0, first, first.copy())
        line = bar.add_task("training", total=made.plan.rounds, completed=state.round_number)
        rounds = train(engine, made.job, accountant, made.plan, state, checkpoint)
        while not stop():
            result = next(rounds, None)
            if result is None:
                break
            folder.append(METRICS, json.dumps(asdict(result)) + "\n")
            words = (
                f"training, accuracy {result.score.accuracy:.1f} %, loss {result.score.loss:.3f}"
            )
            bar.update(line, completed=result.number, description=words)
    statements = [accountant.statement(budget.owner) for budget in made.budgets]
    return list(state.results), state, statements


def _statement(one: PrivacyStatement) -> dict[str, Any]:
    return one.to_dict() | {"text": one.text()}


def _summary(
    results: list[RoundResult], statements: list[PrivacyStatement], complete: bool
) -> dict[str, Any]:
    last = results[-1] if results else None

    def spread(values: list[float]) -> dict[str, float | None]:
        middle = sorted(values)[len(values) // 2]
        shown = {"min": min(values), "median": middle, "max": max(values)}
        return {name: value if np.isfinite(value) else None for name, value in shown.items()}

    return {
        "complete": complete,
        "rounds": len(results),
        "accuracy": None if last is None else last.score.accuracy,
        "loss": None if last is None else last.score.loss,
        "averaged_accuracy": None if last is None or not last.averaged else last.averaged.accuracy,
        "accuracy_per_round": [result.score.accuracy for result in results],
        "refused": sum(len(result.refused) for result in results),
        "guaranteed": all(one.guaranteed for one in statements),
        "private": not any(one.simulated for one in statements),
        "delta": statements[0].delta,
        "neighbours": str(statements[0].neighbours),
        "rho": spread([one.rho_total for one in statements]),
        "epsilon": spread([one.epsilon for one in statements]),
    }
