"""Options that several commands have, and long ones."""

from __future__ import annotations

from typing import Annotated

import typer

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


def epilog(*examples: str, scenario: bool = True) -> str:
    """The end of a command's help: what SCENARIO is, and what a call looks like."""
    lines = [f"Example: noisemarket {example}" for example in examples]
    return "\n\n".join([*([SCENARIO] if scenario else []), *lines])


ScenarioFile = Annotated[
    str | None, typer.Argument(help="Scenario file (TOML): what differs from the preset.")
]
Preset = Annotated[str | None, typer.Option(help="market (default) or paper.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; can be repeated."),
]
Mechanism = Annotated[
    str | None,
    typer.Option(
        "--mechanism",
        "--learner",
        help=f"How contracts are agreed: {MECHANISMS}.",
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(metavar="MONEY", help="Most that the curator pays in all; none for no limit."),
]
TargetAccuracy = Annotated[
    str | None,
    typer.Option(
        metavar="PER CENT", help="Accuracy to reach for the least money, by the loss surface; none."
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of all randomness.")]
Out = Annotated[str | None, typer.Option(help="Run folder; by default a new one in runs/.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Threads = Annotated[int | None, typer.Option(help="Threads; by default one per core.")]
Workers = Annotated[int | None, typer.Option(help="Worker processes; by default one per core.")]
Resume = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Continue a run that was stopped.")
]
Tls = Annotated[
    bool, typer.Option("--tls/--no-tls", help="flower: use TLS certificates and node keys.")
]
Runtime = Annotated[
    str | None,
    typer.Option(
        help="flower: simulation (many owners in one place) or deployment (a SuperNode for each); "
        "by default a deployment for up to 10 owners."
    ),
]
RunsFolder = Annotated[
    str, typer.Argument(metavar="RUNS_FOLDER", help="Folder that holds run folders.")
]
Show = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")]
NeedToken = Annotated[
    bool, typer.Option("--token/--no-token", help="Let in only who has the token of the address.")
]
Ledgers = Annotated[
    list[str] | None,
    typer.Option("--ledger", help="URL of a ledger on a server that may be read; again for more."),
]
