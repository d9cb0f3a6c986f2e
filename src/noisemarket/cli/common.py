"""What several commands do: load a scenario, open or resume a run folder, show progress, stop
cleanly, print."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

import typer

from noisemarket.cli.estimate import announce
from noisemarket.errors import BadInput, Interrupted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from noisemarket.market.run_folder import RunFolder
    from noisemarket.scenario import Scenario

OWNERS, SURFACE = "owners.csv", "surface.toml"

_WITHOUT = {
    "joint": "buys from each owner alone and cannot keep it",
    "keeps_target": "aims at no accuracy",
}
"""What a mechanism does that lacks an ability: in a message."""

Plan = TypeVar("Plan")
Stop = Callable[[], bool]
"""Says, from the first Ctrl-C (or SIGTERM) on: finish what is running and keep it."""

ROUND_DROPPED = "Stopping: this round is dropped, earlier rounds are kept."
TRAINING_DROPPED = "Stopping: finished trainings are kept, those under way are dropped."
_KEPT = "Stopping: running work is finished and kept. Press Ctrl-C again to drop it."


def load(
    file: str | None,
    preset: str | None,
    settings: Sequence[str] | None,
    seed: int | None = None,
    *,
    mechanism: str | None = None,
    budget: str | None = None,
    target_accuracy: str | None = None,
) -> Scenario:
    """The scenario with all options applied; what is odd about its owners' records is told."""
    from noisemarket.federated.data_files import load_data, named_records
    from noisemarket.scenario import load_scenario

    given = {
        "seed": seed,
        "mechanism": None if mechanism is None else f'"{mechanism}"',
        "market.budget": budget,
        "market.target_accuracy": target_accuracy,
    }
    options = [f"{key}={value}" for key, value in given.items() if value is not None]
    scenario = load_scenario(file, preset=preset, settings=[*(settings or ()), *options])
    if named_records(data := scenario.training.data):
        for remark in load_data(data).remarks:
            print(remark, file=sys.stderr, flush=True)
    if target_accuracy is not None and scenario.market.target_accuracy != "none":
        for ability in _WITHOUT:
            only_with(ability, "--target-accuracy", target_accuracy, scenario)
    return scenario


def with_surface(
    scenario: Scenario, workers: int | None, out: str | None = None, overwrite: bool = False
) -> Scenario:
    """The scenario with a loss surface of its own job, measured now if there is none.

    ``out`` that cannot be taken is refused before the trainings, not after them.
    """
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.study import job_surface

    if out:
        RunFolder.check(Path(out), overwrite)
    with (
        stoppable("Stopping: nothing of this run is written yet.") as stop,
        progress("trainings") as bar,
    ):
        line = bar.add_task("measuring the loss surface of this job", total=None, visible=False)

        def watch(done: int, total: int) -> None:
            bar.update(line, completed=done, total=total, visible=True)
            if not done:
                step_done(bar, f"Measuring the loss surface of this job: {total} trainings.")
                announce(scenario, total, workers)

        try:
            found = job_surface.with_surface(scenario, workers=workers, stop=stop, watch=watch)
        except Interrupted:
            told = "stopped while the loss surface was measured; nothing is kept: start it again."
            raise Interrupted(told) from None
    if found.measured_now or not found.fits:
        print(found.remark, file=sys.stderr, flush=True)
    return found.scenario


def only_with(ability: str, option: str, value: str, scenario: Scenario) -> None:
    """Refuse an option that means nothing to a mechanism without this ability."""
    from noisemarket.pricing import MECHANISMS, find_mechanism
    from noisemarket.show.style import listed

    if not getattr(find_mechanism(scenario.mechanism), ability):
        able = listed([one for one in MECHANISMS if getattr(MECHANISMS[one], ability)], "or")
        remedy = f"{scenario.mechanism} {_WITHOUT[ability]}: choose --mechanism {able}."
        raise BadInput(option, value, remedy)


def new_folder(
    scenario: Scenario,
    kind: str,
    out: str | None,
    overwrite: bool,
    *inputs: str | None,
    stem: str = "",
    **facts: object,
) -> RunFolder:
    """A new run folder with the scenario, and its files of owners and surface, to repeat it.

    ``out`` names it, else its name ends in ``stem`` or the ``kind`` of run. ``inputs`` are files
    that the run reads, ``facts`` what each of its statuses says beside the kind.
    """
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.scenario import dump_scenario

    owners, surface = scenario.population.file, scenario.game.surface
    read = [file for file in (owners, surface, *inputs) if file]
    stem = f"{scenario.preset}-{stem or kind}"
    folder = RunFolder.create(out, stem, overwrite=overwrite, inputs=read, kind=kind, **facts)
    with ExitStack() as if_it_fails:
        if_it_fails.push(folder)
        if owners:
            folder.copy(owners, OWNERS, private=True)  # it holds the owners' costs
            population = scenario.population.model_copy(update={"file": OWNERS})
            scenario = scenario.model_copy(update={"population": population})
        if surface.endswith(".toml"):
            folder.copy(surface, SURFACE)
            game = scenario.game.model_copy(update={"surface": SURFACE})
            scenario = scenario.model_copy(update={"game": game})
        folder.write_text("scenario.toml", dump_scenario(scenario))
        if_it_fails.pop_all()
    return folder


def resumed(
    context: typer.Context, folder: str, kind: str, files: Sequence[str], *allowed: str
) -> Path:
    """The folder to resume; refuses all options but these, and a folder of another kind."""
    names = [name.removeprefix("--").removeprefix("[no-]") for name in allowed]
    known, only = {"resume", "as_json", *names}, f"give only {', '.join(allowed)} and --json."
    if folder.startswith("--"):  # an option where its folder should be
        remedy = f"cannot be given with --resume FOLDER: {only}"
        if folder.removeprefix("--").removeprefix("no-") in names:
            remedy = "is where --resume needs its folder: name that first."
        raise BadInput("option", folder, remedy)
    for one in context.command.params:
        source = context.get_parameter_source(str(one.name))
        if one.name not in known and source is not None and source.name == "COMMANDLINE":
            given = context.params[str(one.name)]
            value = given[0] if isinstance(given, list) else given
            raise BadInput(one.opts[0], value, f"cannot be given with --resume: {only}")
    path = Path(folder)
    for name in files:
        if not (path / name).is_file():
            raise BadInput("--resume", folder, f"is not {kind}: it has no {name}.")
    return path


def command_line(context: typer.Context) -> str:
    """The command as it was typed."""
    return shlex.join(["noisemarket", *context.obj])


def saved_plan(folder: Path, name: str, kind: type[Plan]) -> Plan:
    """The plan of a run that is resumed, from a JSON file in its folder."""
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(kind).validate_json((folder / name).read_bytes())
    except (OSError, ValueError):
        raise BadInput("--resume", str(folder / name), "cannot be read.") from None


def writable_file(option: str, file: str | None) -> None:
    """Refuse an option that names a file in a folder that does not exist."""
    if file is not None and (Path(file).is_dir() or not Path(file).parent.is_dir()):
        raise BadInput(option, file, "name a file in a folder that exists.")


@contextmanager
def stoppable(message: str = _KEPT) -> Iterator[Stop]:
    """While open, the first Ctrl-C only requests a stop; a second one interrupts at once."""
    requested = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        print(message, file=sys.stderr, flush=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def progress(unit: str) -> Progress:
    """A progress bar on standard error, shown only on a terminal."""
    from rich import progress as rich
    from rich.console import Console

    console = Console(stderr=True)
    return rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn(unit),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def step_done(bar: Progress, words: str) -> None:
    """Say on standard error that a step is finished, where no bar shows it."""
    if bar.disable:
        print(words, file=sys.stderr, flush=True)


def console() -> Console:
    """Standard output; wide enough for a table where it is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 130, highlight=False)


def show(as_json: bool, document: object, *shown: Table | str) -> None:
    """Print a result: as JSON, or for people by these tables and sentences."""
    if as_json:
        print(json.dumps(document, allow_nan=False))
        return
    out = console()
    for one in shown:
        text = isinstance(one, str)
        out.print(one, soft_wrap=text, markup=False if text else None)


def paths(folder: RunFolder, figures: Iterable[Path] = ()) -> list[str]:
    """Where the run folder and its figures (of each, the PNG) are."""
    said = [f"Run folder: {folder.path}"]
    if folder.was_complete:
        said[0] += " (it was complete already: only what was missing has been computed)"
    pictures = ", ".join(str(path) for path in figures if path.suffix == ".png")
    return [*said, f"Figures: {pictures}"] if pictures else said
