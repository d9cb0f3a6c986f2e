"""The options that several commands have, and how a dataclass of options becomes a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from typer import Argument, Option

from noisemarket.errors import BadInput

if TYPE_CHECKING:
    from noisemarket.market.run_folder import RunFolder
    from noisemarket.scenario import Scenario

SURFACE = "surface.toml"
EMBEDDED, FLOWER = "embedded", "flower"

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


def group(meaning: str) -> typer.Typer:
    """A command that has commands of its own."""
    return typer.Typer(help=meaning, context_settings=HELP, no_args_is_help=True)


def option(
    meaning: str, *names: str, default: Any = None, kind: Callable[..., Any] = Option, **more: Any
) -> Any:
    """A field of a dataclass of options, as typer's Option (or Argument) with these names."""
    return field(default=default, metadata={"typer": kind(*names, help=meaning, **more)})


def flag(name: str, meaning: str) -> Any:
    """A field that is false unless this option is given."""
    return option(meaning, name, default=False)


def taking(
    kind: type[Options], names: str = ""
) -> Callable[[Callable[[Options], object]], Callable[..., object]]:
    """Make a typer command of a function that takes a dataclass of options.

    ``names`` are the fields that become options, in this order (by default all); the others keep
    their defaults.
    """
    hints = get_type_hints(kind, include_extras=True)
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    shown = [known[name] for name in names.split() or known]
    for one in shown:
        if "typer" in one.metadata:
            hints[one.name] = Annotated[hints[one.name], one.metadata["typer"]]
    parameters = [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in shown
    ]

    def decorate(function: Callable[[Options], object]) -> Callable[..., object]:
        def call(**given: Any) -> object:
            return function(kind(**given))

        call.__doc__ = function.__doc__
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return call

    return decorate


def command(
    app: typer.Typer, name: str, *examples: str, takes: str = ""
) -> Callable[[type[Options]], type[Options]]:
    """Make a command of a dataclass: its fields are the options, its docstring is the help.

    ``noisemarket.cli.NAME``, which is imported when the command is called, has a function ``run``
    that gets the options and may return an exit code. ``takes`` is as ``names`` of ``taking``.
    """

    def register(kind: type[Options]) -> type[Options]:
        def run(options: Options) -> object:
            return import_module(f"noisemarket.cli.{name}").run(options)

        ending = epilog(*examples)
        if "scenario" in takes.split():
            ending = f"{SCENARIO}\n\n{ending}"
        app.command(name, help=kind.__doc__, epilog=ending)(taking(kind, takes)(run))
        return kind

    return register


def epilog(*examples: str) -> str:
    """The end of a command's help: what a call looks like."""
    return "\n\n".join(f"Example: noisemarket {example}" for example in examples)


Overwrite = Annotated[bool, Option("--overwrite", help="Replace an earlier run folder.")]
Json = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]
Workers = Annotated[
    int | None,
    Option(min=1, help="Processes or threads at work at once; by default one per core."),
]


@dataclass(frozen=True)
class Request:
    """The options that name a scenario and say how it runs and where its results go."""

    scenario: str | None = option(
        "Scenario file (TOML): what differs from the preset.", kind=Argument
    )
    preset: str | None = option("market (default) or paper.")
    settings: list[str] | None = option(  # noqa: RUF009
        "Change a setting; can be repeated.", "--set", metavar="KEY=VALUE"
    )
    mechanism: str | None = option(f"How contracts are agreed: {MECHANISMS}.")
    budget: str | None = option(
        "Most that the curator pays in all; none for no limit.", metavar="MONEY"
    )
    target_accuracy: str | None = option(
        "Accuracy to reach for the least money, by the loss surface; none.", metavar="PER CENT"
    )
    seed: int | None = option("Seed of all randomness.")
    out: str | None = option("Run folder; by default a new one in runs/.")
    overwrite: Overwrite = False
    resume: str | None = option("Continue a run that was stopped.", metavar="FOLDER")
    workers: Workers = None
    json: Json = False

    def load(self) -> Scenario:
        """The scenario with all options applied."""
        from noisemarket.scenario import load_scenario

        given = {
            "seed": self.seed,
            "mechanism": None if self.mechanism is None else f'"{self.mechanism}"',
            "market.budget": self.budget,
            "market.target_accuracy": self.target_accuracy,
        }
        settings = list(self.settings or [])
        settings += [f"{key}={value}" for key, value in given.items() if value is not None]
        scenario = load_scenario(self.scenario, preset=self.preset, settings=settings)
        if self.target_accuracy is not None and scenario.market.target_accuracy != "none":
            for ability in _WITHOUT:
                self.only_with(ability, "--target-accuracy", self.target_accuracy, scenario)
        return scenario

    @staticmethod
    def only_with(ability: str, option: str, value: str, scenario: Scenario) -> None:
        """Refuse an option that means nothing to a mechanism without this ability."""
        from noisemarket.pricing import MECHANISMS, find_mechanism

        if not getattr(find_mechanism(scenario.mechanism), ability):
            able = ", ".join(name for name in MECHANISMS if getattr(MECHANISMS[name], ability))
            remedy = f"{scenario.mechanism} {_WITHOUT[ability]}: choose --mechanism {able}."
            raise BadInput(option, value, remedy)

    def folder(
        self, scenario: Scenario, what: str, *inputs: str | None, **facts: object
    ) -> RunFolder:
        """A new run folder with the scenario, and its files of owners and surface, to repeat it.

        Its name ends in ``what``, unless there is ``--out``. ``inputs`` are more files that the run
        reads, ``facts`` what each of its statuses says.
        """
        from noisemarket.market.run_folder import RunFolder
        from noisemarket.scenario import dump_scenario

        owners, surface = scenario.population.file, scenario.game.surface
        read = [file for file in (self.scenario, owners, surface, *inputs) if file]
        stem = f"{scenario.preset}-{what}"
        folder = RunFolder.create(self.out, stem, overwrite=self.overwrite, inputs=read)
        with ExitStack() as if_it_fails:
            if_it_fails.push(folder)
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
            if_it_fails.pop_all()
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

    def command_line(self, name: str, *more: str) -> str:
        """The command that repeats a run of this scenario, with more words."""
        words = ["noisemarket", name, *([self.scenario] if self.scenario else [])]
        words += ["--preset", self.preset] if self.preset else []
        for setting in self.settings or ():
            words += ["--set", setting]
        words += ["--seed", str(self.seed)] if self.seed is not None else []
        return shlex.join([*words, *more])


@dataclass(frozen=True)
class MarketOptions(Request):
    """Run the whole market: negotiate, sign, train under contract, verify and pay."""

    baselines: bool | None = option(
        "Also train, for comparison: no trade, DyPP, the best that full knowledge could "
        "buy, and no noise. By default with the bundled data or simulated noise only: a model "
        "without noise is not private."
    )
    draws: int | None = option(
        "Draws of the noise that are compared; by default 3 for features, 1 for the CNN.", min=1
    )
    engine: str | None = option("embedded (default), or flower: Flower's simulation.")
