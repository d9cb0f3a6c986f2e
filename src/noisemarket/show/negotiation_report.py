"""The report of a negotiation: a table on the screen, figures and files in the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from noisemarket.files import save_arrays
from noisemarket.game.equilibrium import equilibrium
from noisemarket.game.value import Worth
from noisemarket.market.negotiation import Negotiation
from noisemarket.market.run_folder import RunFolder
from noisemarket.pricing import MECHANISMS, find_mechanism
from noisemarket.pricing.convergence import Recovery
from noisemarket.pricing.mechanism import Agreement
from noisemarket.pricing.tables import trace_csv
from noisemarket.show.style import colour_of, figure, label, name_of, save, table_of

_DRAWN_OWNERS = 5000

_BILATERAL_ROWS = (
    ("saving", "mean_saving", "{:.3f}"),
    ("payment, {currency}", "mean_payment", "{:.2f}"),
    ("owner's payoff", "mean_owner_payoff", "{:.3f}"),
    ("curator's payoff", "mean_curator_payoff", "{:.3f}"),
    ("curator's gain over no trade", "curator_gain", "{:.3f}"),
    ("model quality (surface, %)", "mean_quality", "{:.1f}"),
    ("owners with a signed contract", "signed_share", "{:.0%}"),
)
_JOINT_ROWS = (
    ("paid in all, {currency}", "total_payment", "{:,.2f}"),
    ("owners' surplus", "owners_surplus", "{:,.2f}"),
    ("quality of the model (surface, %)", "model_quality", "{:.1f}"),
    ("curator's value over no trade", "predicted_value", "{:,.2f}"),
)
"""Words, figure of ``Worth`` and format of each row."""


def summary_table(result: Negotiation) -> Table:
    """The result beside the exact answers of its kind: for one model, or owner by owner."""
    mechanism, agreement = result.scenario.mechanism, result.agreement
    name = name_of(mechanism)
    title = f"{name} on the {result.scenario.preset} preset"
    if mechanism in MECHANISMS and find_mechanism(mechanism).joint:
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
    if not figures:
        return []
    drawn = draw_contracts(folder, result)
    return draw_convergence(folder, result) + drawn if agreement.trace is not None else drawn


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


def draw_convergence(folder: RunFolder, result: Negotiation) -> list[Path]:
    """Saving, payment and curator's gain over the iterations, with the exact answers as lines."""
    trace = result.agreement.trace
    assert trace is not None
    mechanism, currency = result.scenario.mechanism, result.scenario.market.currency
    canvas, axes = figure(3)
    signed = result.scenario.game.protocol == "signed"
    gain = "gain over no trade" if signed else "payoff"
    reward = "curator_gain" if signed else "mean_curator_payoff"
    panels = (
        ("Noise saving", trace.saving, "mean_saving", "mean saving"),
        ("Payment", trace.payment, "mean_payment", f"mean payment, {currency}"),
        (f"Curator's {gain}", trace.curator_reward, reward, f"mean {gain}"),
    )
    starts = [float(phase.start) for phase in result.environment.phases]
    edges = [*starts, float(trace.iteration[-1])]
    exactly = {
        oracle: [result.exactly(oracle, phase) for phase in range(len(starts))]
        for oracle in ("equilibrium", "first_best")
    }
    for axis, (title, series, exact, y) in zip(axes[0], panels, strict=True):
        axis.plot(trace.iteration, series, color=colour_of(mechanism), label=name_of(mechanism))
        for oracle, line in (("equilibrium", "--"), ("first_best", ":")):
            levels = [getattr(tally, exact) for tally in exactly[oracle]]
            colour, name = colour_of(oracle), name_of(oracle)
            axis.stairs(
                levels, edges, baseline=None, color=colour, ls=line, linewidth=1.5, label=name
            )
        for start in starts[1:]:
            axis.axvline(start, color="#b0b0b0", linewidth=0.8)
        label(axis, title, "iteration", y)
        axis.set_xlim(0, trace.iteration[-1])
        axis.set_ylim(bottom=min(0.0, float(series.min())))
    axes[0][0].legend(frameon=False, fontsize=9)
    return save(canvas, folder.path / "figures", "convergence")


def draw_contracts(folder: RunFolder, result: Negotiation) -> list[Path]:
    """Who signed what: saving and payment over the privacy cost, with the equilibrium."""
    environment, mechanism = result.environment, result.scenario.mechanism
    levels, contracts = environment.levels, result.agreement.contracts
    cost = environment.phases[-1].privacy_cost
    some = np.flatnonzero(result.agreement.done[:_DRAWN_OWNERS])
    exact = equilibrium(environment.games(some=slice(0, _DRAWN_OWNERS)))
    canvas, axes = figure(2)
    for axis, title, values, reached, equal in (
        (axes[0][0], "Noise saving", levels.savings, contracts.saving, exact.saving),
        (axes[0][1], "Payment", levels.payments, contracts.payment, exact.payment),
    ):
        colour, name = colour_of("equilibrium"), name_of("equilibrium")
        axis.plot(cost[some], values[equal[some]], "_", color=colour, label=name)
        for signed, marker, words in ((True, ".", "signed"), (False, "x", "nothing signed")):
            those = some[contracts.signed[some] == signed]
            if len(those):
                colour, name = colour_of(mechanism), f"{name_of(mechanism)}, {words}"
                seen = values[reached[those]]
                axis.plot(cost[those], seen, marker, color=colour, alpha=0.7, label=name)
        label(axis, title, "privacy cost of the owner", title.lower())
    axes[0][0].legend(frameon=False, fontsize=9)
    return save(canvas, folder.path / "figures", "contracts")
