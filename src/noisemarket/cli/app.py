"""All commands, with examples of their use."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from noisemarket.cli import data, flower, ledger, owner
from noisemarket.cli.audit import audit
from noisemarket.cli.calibrate import calibrate
from noisemarket.cli.compare import compare
from noisemarket.cli.dashboard import dashboard
from noisemarket.cli.export import export
from noisemarket.cli.negotiate import negotiate
from noisemarket.cli.privacy import privacy
from noisemarket.cli.reproduce import reproduce
from noisemarket.cli.run import run
from noisemarket.cli.scenario import scenario

HELP = {"help_option_names": ["-h", "--help"]}

EXAMPLES: dict[Callable[..., object], list[str]] = {
    run: ["run", "run mine.toml --set owners=20 --seed 7 --out runs/mine",
          "run --owners-folder consortium", "run --resume runs/mine"],
    dashboard: ["dashboard runs --port 8080"],
    negotiate: ["negotiate --preset paper --mechanism dypp"],
    compare: ["compare --mechanisms clock,dypp,pain_fl,uniform --set owners=50"],
    reproduce: ["reproduce --seeds 5 --out runs/reproduction",
                "reproduce mine.toml --out runs/claims"],
    calibrate: ["calibrate --sigmas 0,0.3,0.6 --seeds 3 --name mine"],
    audit: ["audit --set protection=sharded"],
    privacy: ["privacy --sigma 0.3", "privacy --epsilon 2 --set protection=sharded",
              "privacy --rho 0.1 --rho 0.25"],
    export: ["export runs/demo --to tensorboard", "export runs/demo --to csv --out tables"],
    scenario: ["scenario --preset paper > mine.toml", "scenario --explain"],
}  # fmt: skip
GROUPS: dict[str, tuple[str, list[Callable[..., object]]]] = {
    "ledger": (
        "Read a ledger: what was agreed, delivered and paid, and whether it can be trusted.",
        [ledger.ls, ledger.show, ledger.verify, ledger.export, ledger.statement, ledger.record],
    ),
    "owner": (
        "Set up an owner's folder, and read what its records have cost.",
        [owner.init, owner.account],
    ),
    "data": (
        "Describe records, and check owners' tables against a description.",
        [data.describe, data.check],
    ),
    "flower": (
        "Run the market over Flower between hosts; run --engine flower simulates it here.",
        [flower.app, flower.key, flower.check],
    ),
}


class Command(TyperCommand):
    """A command that explains its arguments, once and in plain text: typer before 0.21 loses their
    help on click 8.5, then both list them, and brackets are escaped for rich."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        assert self.callback is not None
        hints = get_type_hints(unwrap(self.callback), include_extras=True)
        for one in self.params:
            if one.param_type_name == "argument":
                one.help = hints[one.name].__metadata__[0].help
        self.short_help = (self.help or "").partition("\n\n")[0]  # whole; else click cuts it

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace("\\[", "[")

    def format_arguments(self, ctx: Any, formatter: Any) -> None:
        """Nothing: ``format_options`` of typer lists them."""


def _examples(*words: str) -> str:
    return "\n\n".join(f"Example: noisemarket {example}" for example in words)


app = typer.Typer(
    name="noisemarket",
    help="A market in which data owners of a federated-learning job sell part of their "
    "differential-privacy noise to the curator, by contract.",
    epilog=_examples("run", "run --set owners=20 --out runs/mine", "run --help"),
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes around the help would double the time that it takes
    context_settings=HELP,
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from noisemarket import __version__

        typer.echo(f"noisemarket {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for command, examples in EXAMPLES.items():
    app.command(cls=Command, epilog=_examples(*examples))(command)
for name, (meaning, commands) in GROUPS.items():
    group = typer.Typer(help=meaning, context_settings=HELP, no_args_is_help=True)
    for command in commands:
        group.command(cls=Command)(command)
    app.add_typer(group, name=name, short_help=meaning)
