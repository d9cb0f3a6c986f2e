"""``noisemarket train``: federated training alone, under given contracts."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import (
    ROUND_DROPPED,
    load,
    new_folder,
    paths,
    progress,
    resumed,
    show,
    stoppable,
)
from noisemarket.cli.estimate import announce
from noisemarket.errors import BadInput, Interrupted

if TYPE_CHECKING:
    from noisemarket.federated.rounds import RoundResult

METRICS, JOURNAL = "metrics.jsonl", "privacy.journal"


def train(
    context: typer.Context,
    file: opt.File = None,
    preset: opt.Preset = None,
    settings: opt.Settings = None,
    contracts: Annotated[
        str | None, Option(metavar="FILE", help="Contracts: a CSV file with owner and sigma.")
    ] = None,
    sigma: Annotated[float | None, Option(help="The same noise scale for all owners.")] = None,
    seed: opt.Seed = None,
    out: opt.Out = None,
    overwrite: opt.Overwrite = False,
    resume: opt.Resume = None,
    workers: opt.Workers = None,
    as_json: opt.Json = False,
) -> None:
    """Train on MNIST under given contracts and write a privacy statement per owner."""
    from noisemarket.federated.rounds import Checkpoint, check_charges
    from noisemarket.files import save_arrays
    from noisemarket.formats import csv_text
    from noisemarket.market.orders import given_sigma, order, read_contracts
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.market.training import carry_out
    from noisemarket.privacy.accountant import JournalledAccountant
    from noisemarket.scenario import load_scenario
    from noisemarket.show.training_report import draw_training, training_table

    if resume is not None:
        files = ("scenario.toml", "contracts.csv", JOURNAL)
        folder = RunFolder(resumed(context, resume, "a training run", files, "--workers"))
        scenario = load_scenario(folder.path / "scenario.toml")
        contracts = str(folder.path / "contracts.csv")
    else:
        scenario = load(file, preset, settings, seed)
        if (contracts is None) == (sigma is None):
            raise BadInput("--sigma", str(sigma), "give one of --sigma and --contracts.")
    environment = scenario.environment()
    if contracts is None:
        assert sigma is not None
        noise = given_sigma(sigma, environment)
    else:
        noise = read_contracts(contracts, environment)
    job_order = order(scenario, environment, noise)
    if resume is None:
        folder = new_folder(scenario, "train", out, overwrite, file, contracts)
    with ExitStack() as stack:
        if resume is None:
            stack.enter_context(folder)
            rows = zip(environment.population.names, noise.tolist(), strict=True)
            folder.write_text("contracts.csv", csv_text(["owner", "sigma"], rows))
        checkpoint = Checkpoint(folder.path / "checkpoint.npz", job_order.fingerprint)
        state = job_order.resumed(checkpoint)
        journal = JournalledAccountant(folder.path / JOURNAL, job_order.budgets)
        accountant = stack.enter_context(journal)
        check_charges(accountant, state)
        if resume is not None:  # only now is it known to be of this job and not in use
            folder = stack.enter_context(RunFolder.reopen(folder.path))
        folder.write_text(METRICS, "".join(_line(result) for result in state.results))
        planned = job_order.plan.rounds
        if resume is None:
            announce(scenario, 1, workers)
        with stoppable(ROUND_DROPPED) as stop, progress("rounds") as bar:
            line = bar.add_task("training", total=planned, completed=state.rounds_done)

            def watch(result: RoundResult) -> None:
                folder.append(METRICS, _line(result))
                score = result.score
                words = f"training, accuracy {score.accuracy:.1f} %, loss {score.loss:.3f}"
                bar.update(line, completed=result.number, description=words)

            done = carry_out(
                job_order, accountant, checkpoint, state, workers=workers, watch=watch, stop=stop
            )
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
            rounds=planned,
            rounds_done=rounds,
            secure_noise=job_order.job.noise == "secure",
        )
    if not done.complete:
        raise Interrupted(
            f"stopped after {rounds} of {planned} rounds; continue with --resume {folder.path}."
        )
    shown = [training_table(done.rounds[-1], done.statements)] if done.rounds else []
    said = []
    if summary["rho_cap"] is not None:
        spent = f"{done.owners_at_cap} of {len(done.statements)} owners have used it up"
        said.append(f"Cap: rho {summary['rho_cap']:.4g} for each owner; {spent}.")
    if rounds < planned:
        said.append(f"The privacy budgets were used up after {rounds} of {planned} rounds.")
    show(as_json, summary, *shown, *said, *paths(folder, figures))


def _line(result: RoundResult) -> str:
    return json.dumps(result.to_dict(), allow_nan=False) + "\n"
