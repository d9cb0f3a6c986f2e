"""``noisemarket privacy``: what noise costs in privacy, and which noise an epsilon takes."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import load, show
from noisemarket.errors import BadInput


def privacy(
    file: opt.File = None,
    preset: opt.Preset = None,
    settings: opt.Settings = None,
    sigma: Annotated[
        float | None, Option(help="Noise scale on the uploaded model: what it costs in privacy.")
    ] = None,
    epsilon: Annotated[float | None, Option(help="Epsilon: which noise scale it needs.")] = None,
    rho: Annotated[
        list[float] | None,
        Option(help="zCDP of a job: what epsilon it is; can be repeated: jobs add up."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Show what noise costs in privacy, and which noise an epsilon needs."""
    from noisemarket.show.privacy_report import privacy_answer, privacy_shown

    if rho and (sigma, epsilon) != (None, None):
        remedy = "it becomes an epsilon by itself: give it without --sigma and --epsilon."
        raise BadInput("--rho", f"{rho[0]:g}", remedy)
    document = privacy_answer(load(file, preset, settings), sigma, epsilon, rho or ())
    show(as_json, document, *privacy_shown(document))
