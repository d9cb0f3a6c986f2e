"""The options that several commands have, and how a dataclass of options becomes a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from noisemarket.errors import BadInput

if TYPE_CHECKING:
    from noisemarket.runfolder import RunFolder
    from noisemarket.scenario import Scenario

SURFACE = "surface.toml"

SCENARIO = (
    "SCENARIO is a TOML file with what differs from the preset, such as owners and budget: "
    "noisemarket scenario > mine.toml writes one to edit. Without it, the preset is taken as it is."
)
"""What the argument is; typer shows no help of arguments."""

MECHANISMS = (
    "clock (default), dypp (default of paper), q_learning, phc, greedy, bisection, pac_auction, "
    "csra_auction, posted_price, pain_fl, uniform, no_dp, equilibrium, best_portfolio, first_best"
)
"""Those of this package, written out: to look them up would load all that learns."""

HELP = {"help_option_names": ["-h", "--help"]}

_WITHOUT = {
    "joint": "buys from each owner alone and cannot keep it",
    "keeps_target": "aims at no accuracy",
}
"""What a mechanism does that lacks an ability: in a message."""

Options = TypeVar("Options")


def taking(
    kind: type[Options], names: str = ""
) -> Callable[[Callable[[Options], object]], Callable[..., object]]:
    """Make of a function of one object what typer takes for a function of its fields.

    Args:
        kind: a dataclass whose fields are annotated as typer's parameters.
        names: the fields that become options, in this order; the others keep their defaults. By
            default all.
    """
    hints = get_type_hints(kind, include_extras=True)
    defaults = {one.name: one.default for one in fields(kind)}  # type: ignore[arg-type]
    shown = names.split() or list(defaults)

    def decorate(function: Callable[[Options], object]) -> Callable[..., object]:
        def call(**given: Any) -> object:
            return function(kind(**given))

        call.__doc__ = function.__doc__
        call.__annotations__ = {name: hints[name] for name in shown}
        call.__signature__ = Signature([  # type: ignore[attr-defined]
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hints[name])
            for name in shown
        ])  # fmt: skip
        return call

    return decorate


def command(
    group: typer.Typer, name: str, *examples: str, takes: str = ""
) -> Callable[[type[Options]], type[Options]]:
    """Make a command of a dataclass: its fields are the options, its docstring is the help.

    ``noisemarket.cli.NAME``, which is imported when the command is called, has a function ``run``
    that gets the options and may return an exit code.

    Args:
        group: where the command goes.
        name: what it is called, and its module.
        examples: calls to show at the end of its help.
        takes: as ``names`` of ``taking``.
    """

    def register(kind: type[Options]) -> type[Options]:
        def run(options: Options) -> object:
            return import_module(f"noisemarket.cli.{name}").run(options)

        ending = epilog(*examples, scenario="scenario" in takes.split())
        group.command(name, help=kind.__doc__, epilog=ending)(taking(kind, takes)(run))
        return kind

    return register


def epilog(*examples: str, scenario: bool = True) -> str:
    """The end of a command's help: what SCENARIO is, and what a call looks like."""
    lines = [f"Example: noisemarket {example}" for example in examples]
    return "\n\n".join([*([SCENARIO] if scenario else []), *lines])


Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Threads = Annotated[int | None, typer.Option(help="Threads; by default one per core.")]


@dataclass(frozen=True)
class Request:
    """The options that name a scenario and say how it runs and where its results go."""

    scenario: Annotated[
        str | None, typer.Argument(help="Scenario file (TOML): what differs from the preset.")
    ] = None
    preset: Annotated[str | None, typer.Option(help="market (default) or paper.")] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; can be repeated."),
    ] = None
    mechanism: Annotated[
        str | None,
        typer.Option("--mechanism", "--learner", help=f"How contracts are agreed: {MECHANISMS}."),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(metavar="MONEY", help="Most that the curator pays in all; none for no limit."),
    ] = None
    target_accuracy: Annotated[
        str | None,
        typer.Option(
            metavar="PER CENT",
            help="Accuracy to reach for the least money, by the loss surface; none.",
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.")] = None
    out: Annotated[str | None, typer.Option(help="Run folder; by default a new one in runs/.")] = (
        None
    )
    overwrite: Overwrite = False
    resume: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Continue a run that was stopped.")
    ] = None
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; by default one per core.")
    ] = None
    threads: Threads = None
    json: Json = False

    def __post_init__(self) -> None:
        at_least_one("--workers", self.workers)
        at_least_one("--threads", self.threads)

    def load(self) -> Scenario:
        """The scenario with all options applied."""
        from noisemarket.scenario import load_scenario

        settings = list(self.settings or [])
        if self.seed is not None:
            settings.append(f"seed={self.seed}")
        if self.mechanism is not None:
            settings.append(f'mechanism="{self.mechanism}"')
        if self.budget is not None:
            settings.append(f"market.budget={self.budget}")
        if self.target_accuracy is not None:
            settings.append(f"market.target_accuracy={self.target_accuracy}")
        scenario = load_scenario(self.scenario, preset=self.preset, settings=settings)
        if self.target_accuracy is not None and scenario.market.target_accuracy != "none":
            for ability in _WITHOUT:
                self.only_with(ability, "--target-accuracy", self.target_accuracy, scenario)
        return scenario

    @staticmethod
    def only_with(ability: str, option: str, value: str, scenario: Scenario) -> None:
        """Refuse an option that means nothing to a mechanism without this ability."""
        from noisemarket.mechanisms import MECHANISMS, find_mechanism

        if not getattr(find_mechanism(scenario.mechanism), ability):
            able = ", ".join(name for name in MECHANISMS if getattr(MECHANISMS[name], ability))
            remedy = f"{scenario.mechanism} {_WITHOUT[ability]}: choose --mechanism {able}."
            raise BadInput(option, value, remedy)

    def folder(
        self, scenario: Scenario, what: str, *inputs: str | None, **facts: object
    ) -> RunFolder:
        """A new run folder with the scenario, and its files of owners and surface, to repeat it.

        Args:
            scenario: what is run.
            what: the end of the folder's name, if it is not named by ``--out``.
            inputs: more files that the run reads.
            facts: what every status of the run says as well.
        """
        from noisemarket.runfolder import RunFolder
        from noisemarket.scenario import dump_scenario

        owners, surface = scenario.population.file, scenario.game.surface
        read = [file for file in (self.scenario, owners, surface, *inputs) if file]
        stem = f"{scenario.preset}-{what}"
        folder = RunFolder.create(self.out, stem, overwrite=self.overwrite, inputs=read)
        if facts:
            folder.note(**facts)
        if owners:
            copy = "owners" + Path(owners).suffix
            folder.copy(owners, copy, private=True)  # it holds the owners' costs
            population = scenario.population.model_copy(update={"file": copy})
            scenario = scenario.model_copy(update={"population": population})
        if surface.endswith(".toml"):
            folder.copy(surface, SURFACE)
            game = scenario.game.model_copy(update={"surface": SURFACE})
            scenario = scenario.model_copy(update={"game": game})
        folder.write_text("scenario.toml", dump_scenario(scenario))
        return folder

    def resumed(self, kind: str, files: Sequence[str], allowed: str, *others: object) -> Path:
        """The folder to resume; refuses other options beside it, and a folder of another kind."""
        given = (
            self.scenario,
            self.preset,
            self.settings,
            self.mechanism,
            self.out,
            self.overwrite,
        )
        demands = (self.seed, self.budget, self.target_accuracy)
        if any(given) or any(one is not None for one in (*demands, *others)):
            raise BadInput("--resume", self.resume, f"with it, give only {allowed}.")
        path = Path(str(self.resume))
        for name in files:
            if not (path / name).is_file():
                raise BadInput("--resume", self.resume, f"is not {kind}: it has no {name}.")
        return path

    def command_line(self, name: str) -> str:
        """The command that names this scenario, for who repeats a run."""
        words = ["noisemarket", name, *([self.scenario] if self.scenario else [])]
        words += ["--preset", self.preset] if self.preset else []
        for setting in self.settings or ():
            words += ["--set", setting]
        return shlex.join(words + (["--seed", str(self.seed)] if self.seed is not None else []))


@dataclass(frozen=True)
class RunOptions(Request):
    """Run the whole market: negotiate, sign, train under contract, verify and pay."""

    full: Annotated[
        bool, typer.Option("--full", help="The paper's full setting: larger and slower.")
    ] = False
    baselines: Annotated[
        bool | None,
        typer.Option(
            help="Also train, for comparison: no trade, DyPP, the best that full knowledge could "
            "buy, and no noise. By default with the bundled data or simulated noise only: a model "
            "without noise is not private."
        ),
    ] = None
    draws: Annotated[
        int | None,
        typer.Option(
            help="Draws of the noise that are compared; by default 3 for features, 1 for the CNN."
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(help="embedded (default), or flower: Flower processes on this machine."),
    ] = None
    tls: Annotated[
        bool, typer.Option("--tls/--no-tls", help="flower: use TLS certificates and node keys.")
    ] = True
    runtime: Annotated[
        str | None,
        typer.Option(
            help="flower: simulation (many owners in one place) or deployment (a SuperNode for "
            "each); by default a deployment for up to 10 owners."
        ),
    ] = None


def at_least_one(option: str, number: int | None) -> None:
    """Refuse an option that counts threads or processes if it is below 1."""
    if number is not None and number < 1:
        raise BadInput(option, number, "give at least 1.")
