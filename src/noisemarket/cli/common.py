"""What several commands share: the request, a progress bar, and stopping cleanly."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from noisemarket.errors import BadInput
from noisemarket.runfolder import RunFolder
from noisemarket.scenario import Scenario, dump_scenario, load_scenario

SURFACE = "surface.toml"
_WITHOUT = {
    "joint": "buys from each owner alone and cannot keep it",
    "keeps_target": "aims at no accuracy",
}
"""What a mechanism does that lacks an ability: in a message."""


@dataclass(frozen=True)
class Request:
    """The options that name a scenario and say where its results go."""

    file: str | None
    preset: str | None
    settings: list[str] | None
    seed: int | None
    mechanism: str | None
    threads: int | None
    out: str | None
    overwrite: bool
    json: bool
    budget: str | None = None
    target: str | None = None

    def scenario(self) -> Scenario:
        """The scenario with all options applied."""
        at_least_one("--threads", self.threads)
        settings = list(self.settings or [])
        if self.seed is not None:
            settings.append(f"seed={self.seed}")
        if self.mechanism is not None:
            settings.append(f'mechanism="{self.mechanism}"')
        for name, value in (("budget", self.budget), ("target_accuracy", self.target)):
            if value is not None:
                settings.append(f"market.{name}={value}")
        scenario = load_scenario(self.file, preset=self.preset, settings=settings)
        if self.target is not None and scenario.market.target_accuracy != "none":
            for ability in _WITHOUT:
                self.only_with(ability, "--target-accuracy", self.target, scenario)
        return scenario

    @staticmethod
    def only_with(ability: str, option: str, value: str, scenario: Scenario) -> None:
        """Refuse an option that means nothing to a mechanism without this ability."""
        from noisemarket.mechanisms import MECHANISMS, find_mechanism

        if not getattr(find_mechanism(scenario.mechanism), ability):
            able = ", ".join(name for name in MECHANISMS if getattr(MECHANISMS[name], ability))
            remedy = f"{scenario.mechanism} {_WITHOUT[ability]}: choose --mechanism {able}."
            raise BadInput(option, value, remedy)

    def folder(self, scenario: Scenario, stem: str, *more_inputs: str | None) -> RunFolder:
        """The run folder, created."""
        named = (self.file, scenario.population.file, scenario.game.surface, *more_inputs)
        inputs = [file for file in named if file]
        return RunFolder.create(self.out, stem, overwrite=self.overwrite, inputs=inputs)

    def resumed(
        self, resume: str, kind: str, files: Sequence[str], allowed: str, *others: object
    ) -> Path:
        """The folder to resume; refuses other options beside it, and a folder of another kind."""
        given = (self.file, self.preset, self.settings, self.mechanism, self.out, self.overwrite)
        demands = (self.seed, self.budget, self.target)
        if any(given) or any(one is not None for one in (*demands, *others)):
            raise BadInput("--resume", resume, f"with it, give only {allowed}.")
        path = Path(resume)
        for name in files:
            if not (path / name).is_file():
                raise BadInput("--resume", resume, f"is not {kind}: it has no {name}.")
        return path


def at_least_one(option: str, number: int | None) -> None:
    """Refuse an option that counts threads or processes if it is below 1."""
    if number is not None and number < 1:
        raise BadInput(option, number, "give at least 1.")


def names_of(mechanisms: str | None) -> list[str]:
    """The mechanisms that an option names; none if it is not given."""
    names = [name.strip() for name in mechanisms.split(",")] if mechanisms else []
    if len(set(names)) != len(names):
        raise BadInput("--mechanisms", str(mechanisms), "name each mechanism once.")
    return names


def writable_file(option: str, file: str | None) -> None:
    """Refuse an option that names a file in a folder that does not exist."""
    if file is not None and (Path(file).is_dir() or not Path(file).parent.is_dir()):
        raise BadInput(option, file, "name a file in a folder that exists.")


Stop = Callable[[], bool]
"""Says, from the first Ctrl-C (or SIGTERM) on: finish what is running and keep it."""

_KEPT = "Stopping: running work is finished and kept. Press Ctrl-C again to drop it."


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


@contextmanager
def progress(unit: str) -> Iterator[Progress]:
    """A progress bar on standard error, shown only on a terminal."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        yield bar


def keep_scenario(folder: RunFolder, scenario: Scenario) -> None:
    """Write the scenario, and its files of owners and surface, so that the run can be repeated."""
    if scenario.population.file:
        copy = "owners" + Path(scenario.population.file).suffix
        folder.copy(scenario.population.file, copy, private=True)  # it holds the owners' costs
        population = scenario.population.model_copy(update={"file": copy})
        scenario = scenario.model_copy(update={"population": population})
    if scenario.game.surface.endswith(".toml"):
        folder.copy(scenario.game.surface, SURFACE)
        game = scenario.game.model_copy(update={"surface": SURFACE})
        scenario = scenario.model_copy(update={"game": game})
    folder.write_text("scenario.toml", dump_scenario(scenario))


def console() -> Console:
    """Standard output; wide enough for a table where it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 130, highlight=False)


def print_paths(folder: RunFolder, figures: Iterable[Path] = ()) -> None:
    """Name the run folder and its figures (of each, the PNG)."""
    out = console()
    out.print(f"Run folder: {folder.path}", soft_wrap=True, markup=False)
    if pictures := ", ".join(str(path) for path in figures if path.suffix == ".png"):
        out.print(f"Figures: {pictures}", soft_wrap=True, markup=False)
