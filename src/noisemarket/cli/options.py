"""The options that several commands have."""

from typing import Annotated

from typer import Argument, Option

MECHANISMS = (
    "dypp (default), clock, q_learning, phc, greedy, bisection, pac_auction, csra_auction, "
    "posted_price, pain_fl, uniform, no_dp, equilibrium, best_portfolio, first_best"
)
"""Those of this package, written out: to look them up would load all that learns."""

File = Annotated[
    str | None,
    Argument(
        metavar="SCENARIO",
        help="SCENARIO is a TOML file with what differs from the preset, such as owners and "
        "budget: noisemarket scenario > mine.toml writes one to edit. Without it, the preset is "
        "taken as it is.",
    ),
]
Preset = Annotated[str | None, Option(help="market (default), paper, or fars.")]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Change a setting; can be repeated."),
]
Mechanism = Annotated[str | None, Option(help=f"How contracts are agreed: {MECHANISMS}.")]
Budget = Annotated[
    str | None,
    Option(metavar="MONEY", help="Most that the curator pays in all; none for no limit."),
]
TargetAccuracy = Annotated[
    str | None,
    Option(
        metavar="PER CENT",
        help="Accuracy to reach for the least money, by the loss surface; none.",
    ),
]
Seed = Annotated[int | None, Option(help="Seed of all randomness.")]
Out = Annotated[str | None, Option(help="Run folder; by default a new one in runs/.")]
Overwrite = Annotated[bool, Option("--overwrite", help="Replace an earlier run folder.")]
Resume = Annotated[str | None, Option(metavar="FOLDER", help="Continue a run that was stopped.")]
Workers = Annotated[
    int | None,
    Option(min=1, help="Processes or threads at work at once; by default one per core."),
]
Json = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]
