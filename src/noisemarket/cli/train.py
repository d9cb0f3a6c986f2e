"""``noisemarket train``: federated training alone, under given contracts."""

from __future__ import annotations

import json
from contextlib import ExitStack

from noisemarket.cli.app import TrainOptions
from noisemarket.cli.common import ROUND_DROPPED, paths, progress, show, stoppable
from noisemarket.errors import BadInput, Interrupted
from noisemarket.federated.rounds import Checkpoint, RoundResult, State, check_charges
from noisemarket.files import save_arrays
from noisemarket.formats import csv_text
from noisemarket.market.orders import Order, given_sigma, order, read_contracts
from noisemarket.market.run_folder import RunFolder
from noisemarket.market.training import Training, carry_out
from noisemarket.privacy.accountant import JournalledAccountant
from noisemarket.scenario import load_scenario
from noisemarket.show.training_report import draw_training, training_table

METRICS, CHECKPOINT, JOURNAL = "metrics.jsonl", "checkpoint.npz", "privacy.journal"


def run(options: TrainOptions) -> None:
    """Train, then write the run folder and print the summary."""
    contracts, sigma = options.contracts, options.sigma
    if options.resume is not None:
        files, allowed = ("scenario.toml", "contracts.csv", JOURNAL), "--workers and --json"
        folder = RunFolder(options.resumed("a training run", files, allowed, contracts, sigma))
        scenario = load_scenario(folder.path / "scenario.toml")
        environment = scenario.environment()
        noise = read_contracts(str(folder.path / "contracts.csv"), environment)
        job_order = order(scenario, environment, noise)
    else:
        scenario = options.load()
        environment = scenario.environment()
        if (contracts is None) == (sigma is None):
            raise BadInput("--sigma", str(sigma), "give one of --sigma and --contracts.")
        if sigma is not None:
            noise = given_sigma(sigma, environment)
        else:
            noise = read_contracts(str(contracts), environment)
        job_order = order(scenario, environment, noise)
        folder = options.folder(scenario, "train", contracts)
    with ExitStack() as stack:
        if options.resume is None:
            stack.enter_context(folder)
            rows = zip(environment.population.names, noise.tolist(), strict=True)
            folder.write_text("contracts.csv", csv_text(["owner", "sigma"], rows))
        checkpoint = Checkpoint(folder.path / CHECKPOINT, job_order.fingerprint)
        state = job_order.resumed(checkpoint)
        journal = JournalledAccountant(folder.path / JOURNAL, job_order.budgets)
        accountant = stack.enter_context(journal)
        check_charges(accountant, state)
        if options.resume is not None:  # only now is it known to be of this job and not in use
            folder = stack.enter_context(RunFolder.reopen(folder.path))
        done = _train(folder, job_order, accountant, checkpoint, state, options.workers)
        summary, rounds = done.summary(), len(done.rounds)
        folder.write_json("summary.json", summary)
        statements = [
            {"index": index, **one.to_dict(), "text": one.text()}
            for index, one in enumerate(done.statements)
        ]
        folder.write_json("statements.json", statements)
        save_arrays(folder.path / "model.npz", weights=done.weights, averaged=done.averaged)
        data = job_order.job.data
        figures = draw_training(folder, done.rounds, job_order.job.partition, data.train_labels)
        folder.status(
            "complete" if done.complete else "incomplete",
            rounds=job_order.plan.rounds,
            rounds_done=rounds,
            secure_noise=job_order.job.noise == "secure",
        )
    if not done.complete:
        raise Interrupted(
            f"stopped after {rounds} of {job_order.plan.rounds} rounds; continue with "
            f"--resume {folder.path}."
        )
    shown = [training_table(done.rounds[-1], done.statements)] if done.rounds else []
    said = []
    if summary["rho_cap"] is not None:
        spent = f"{done.owners_at_cap} of {len(done.statements)} owners have used it up"
        said.append(f"Cap: rho {summary['rho_cap']:.4g} for each owner; {spent}.")
    if rounds < (planned := job_order.plan.rounds):
        said.append(f"The privacy budgets were used up after {rounds} of {planned} rounds.")
    show(options.json, summary, *shown, *said, *paths(folder, figures))


def _train(
    folder: RunFolder,
    job_order: Order,
    accountant: JournalledAccountant,
    checkpoint: Checkpoint,
    state: State,
    workers: int | None,
) -> Training:
    folder.write_text(METRICS, "".join(_line(result) for result in state.results))
    with stoppable(ROUND_DROPPED) as stop, progress("rounds") as bar:
        line = bar.add_task("training", total=job_order.plan.rounds, completed=state.rounds_done)

        def watch(result: RoundResult) -> None:
            folder.append(METRICS, _line(result))
            words = (
                f"training, accuracy {result.score.accuracy:.1f} %, loss {result.score.loss:.3f}"
            )
            bar.update(line, completed=result.number, description=words)

        return carry_out(
            job_order, accountant, checkpoint, state, workers=workers, watch=watch, stop=stop
        )


def _line(result: RoundResult) -> str:
    return json.dumps(result.to_dict(), allow_nan=False) + "\n"
