"""The report of a negotiation: a table on the screen, figures and files in the run folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from noisemarket.files import save_arrays
from noisemarket.game.value import Worth
from noisemarket.market.negotiation import Negotiation, trace_csv
from noisemarket.market.run_folder import RunFolder
from noisemarket.pricing import find_mechanism
from noisemarket.pricing.convergence import Recovery
from noisemarket.pricing.mechanism import Agreement
from noisemarket.show.style import colour_of, figure, label, name_of, save, table_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

_BILATERAL_ROWS = (
    ("saving", "mean_saving", "{:.3f}"),
    ("payment, {currency}", "mean_payment", "{:.2f}"),
    ("owner's payoff", "mean_owner_payoff", "{:.3f}"),
    ("curator's payoff", "mean_curator_payoff", "{:.3f}"),
    ("curator's gain over no trade", "curator_gain", "{:.3f}"),
    ("quality of an owner's own model, %", "mean_quality", "{:.1f}"),
    ("accuracy of the one model, predicted, %", "model_quality", "{:.1f}"),
    ("owners with a signed contract", "signed_share", "{:.0%}"),
)
_JOINT_ROWS = (
    ("paid in all, {currency}", "total_payment", "{:,.2f}"),
    ("owners' surplus", "owners_surplus", "{:,.2f}"),
    ("accuracy of the one model, predicted, %", "model_quality", "{:.1f}"),
    ("curator's value over no trade", "predicted_value", "{:,.2f}"),
)
"""Words, figure of ``Worth`` and format of each row."""


CURVE_COLUMNS = ("mechanism", "iteration", "saving", "payment", "curator_gain")
_CURVES = (
    ("Noise saving", "mean saving"),
    ("Payment", "mean payment, {currency}"),
    ("Curator's gain over no trade", "mean gain"),
)
"""Title and axis of each column of the curves after the iteration."""

_EXACT = "equilibrium"

Curves = dict[str, NDArray[np.float64]]
"""Of each mechanism a row per point of its trace: the numbers of ``CURVE_COLUMNS``."""


def summary_table(result: Negotiation) -> Table:
    """The result beside the exact answers of its kind: for one model, or owner by owner."""
    mechanism, agreement = result.scenario.mechanism, result.agreement
    name = name_of(mechanism)
    title = f"{name} on the {result.scenario.preset} preset"
    if find_mechanism(mechanism).joint:
        table = table_of(title, "all owners together", "no trade", name, "with full knowledge")
        found = result.exactly("uniform"), result.learned, result.exactly("best_portfolio")
        owners = len(result.environment)
        table.add_row("owners that sell", *(f"{round(x.signed_share * owners):,}" for x in found))
        _add_rows(table, _JOINT_ROWS, found, result)
        return table
    table = table_of(title, "mean per owner", name, "exact equilibrium", "first best")
    found = result.learned, result.equilibrium, result.first_best
    _add_rows(table, _BILATERAL_ROWS, found, result)
    if agreement.trace is not None:
        at, last = result.converged_at, agreement.trace.iteration[-1]
        shown = f"not within {last:,}" if at is None else f"{at:,}"
        table.add_row("iterations to converge", shown, "-", "-")
    owner, curator = agreement.owner_exploitability, agreement.curator_exploitability
    if owner is not None and curator is not None and agreement.done.any():
        table.add_row("owner could still gain", f"{np.nanmean(owner):.3f}", "", "")
        table.add_row("curator could still gain", f"{np.nanmean(curator):.3f}", "", "")
    for recovery in result.recoveries:
        title = f"iterations to recover from the change at {recovery.at:,}"
        table.add_row(title, recovered(recovery), "-", "-")
    return table


def _add_rows(
    table: Table,
    rows: Sequence[tuple[str, str, str]],
    columns: Sequence[Worth],
    result: Negotiation,
) -> None:
    for words, name, form in rows:
        shown = (form.format(getattr(one, name)).replace("%", " %") for one in columns)
        table.add_row(words.format(currency=result.scenario.market.currency), *shown)


def recovered(recovery: Recovery) -> str:
    """Iterations to recover, or what was left of the efficiency where a learner did not."""
    if recovery.iterations is not None:
        return f"{recovery.iterations:,}"
    before, after = recovery.efficiency_before, recovery.efficiency_after
    if before is None or after is None:
        return "not settled"
    return f"never ({100 * before:.0f} % to {100 * after:.0f} %)"


def write_run(folder: RunFolder, result: Negotiation, *, figures: bool) -> list[Path]:
    """Write all results of a run; returns the figures, if any are wanted."""
    agreement = result.agreement
    folder.write_text("contracts.csv", result.contracts_csv(), private=True)  # with costs
    folder.write_json("summary.json", result.summary())
    if agreement.trace is not None:
        folder.write_text("trace.csv", trace_csv(agreement.trace))
    write_policies(folder, agreement)
    curves = game_curves({result.scenario.mechanism: result}) if figures else {}
    currency = result.scenario.market.currency
    return draw_curves(folder.path / "figures", curves, currency) if curves else []


def write_policies(folder: RunFolder, agreement: Agreement) -> None:
    """Write both sides' final policies, of a mechanism that learns."""
    if agreement.owner_policies is not None and agreement.curator_policies is not None:
        save_arrays(
            folder.path / "policies.npz",
            compressed=True,
            owners=np.flatnonzero(agreement.done),
            owner=agreement.owner_policies.astype(np.float32),
            curator=agreement.curator_policies.astype(np.float32),
        )


def game_curves(results: Mapping[str, Negotiation]) -> Curves:
    """How play went under each mechanism that learns, and the exact equilibrium at these points."""
    curves: Curves = {}
    for name, result in results.items():
        trace, gains = result.agreement.trace, result.curator_gains
        if trace is not None and gains is not None:
            if not curves:
                exact = [result.equilibria[at] for at in result.phases_of(trace.iteration)]
                levels = [(one.mean_saving, one.mean_payment, one.curator_gain) for one in exact]
                curves[_EXACT] = np.column_stack([trace.iteration, levels])
            curves[name] = np.column_stack([trace.iteration, trace.saving, trace.payment, gains])
    return curves


def curve_csv_rows(curves: Curves) -> Iterator[list[object]]:
    """The same for ``curves.csv``."""
    for name, points in curves.items():
        for iteration, *values in points.tolist():
            yield [name, int(iteration), *values]


def draw_curves(folder: Path, curves: Curves, currency: str) -> list[Path]:
    """Saving, payment and curator's gain over the iterations, a curve for each mechanism that
    learns, and the exact equilibrium as a line."""
    canvas, axes = figure(len(_CURVES))
    titles = [(title, y.format(currency=currency)) for title, y in _CURVES]
    plot_curves(axes[0], curves, titles)
    lines, names = axes[0][0].get_legend_handles_labels()
    canvas.legend(lines, names, loc="outside lower center", ncols=min(len(names), 6), frameon=False)
    return save(canvas, folder, "curves")


def plot_curves(axes: Iterable[Axes], curves: Curves, titles: Sequence[tuple[str, str]]) -> None:
    """The same in given axes: saving, then payment, then gain, each with title and name of y."""
    exact = curves[_EXACT]
    for column, (axis, (title, y)) in enumerate(zip(axes, titles, strict=True), start=1):
        for name, points in curves.items():
            if name != _EXACT:
                single = "o" * (len(points) == 1)
                axis.plot(
                    points[:, 0], points[:, column], color=colour_of(name), marker=single,
                    label=name_of(name),
                )  # fmt: skip
        axis.step(
            exact[:, 0], exact[:, column], where="pre", color=colour_of(_EXACT), linestyle="--",
            linewidth=1.5, label=name_of(_EXACT),
        )  # fmt: skip
        axis.set_xlim(0, exact[-1, 0])
        low, high = axis.get_ylim()
        axis.set_ylim(min(low, -0.03 * high), high)
        label(axis, title, "interactions of each pair", y)
