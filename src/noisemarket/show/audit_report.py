"""The report of an audit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from noisemarket.market.run_folder import RunFolder
from noisemarket.show.style import figure, label, save, table_of
from noisemarket.study.audit import AuditResult, Finding

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MINUS, _PLUS, _CLAIM, _BREACH = "#1f5fa8", "#c8641b", "#222222", "#b03a5b"
_SHOWN = 8.0  # standard deviations to either side; scores beyond are drawn at the edge
WEAK = 0.8
"""Share of the claim that a good canary proves of a right protection at least."""


def audit_table(result: AuditResult) -> Table:
    """Every canary and every check of noise: claimed, found, verdict."""
    title = f"Audit of {result.protection}, {result.trials:,} trials an arm"
    table = table_of(
        title, "canary", "records", "sigma", "wrong guesses", "claimed mu", "proven mu",
        "claimed, proven epsilon",
    )  # fmt: skip
    table.add_column("verdict")
    for one in result.findings:
        epsilon = f"{one.epsilon:.2f}" if math.isfinite(one.epsilon) else "none"
        table.add_row(
            one.name,
            f"{one.records}",
            f"{one.sigma:.4g}",
            f"{one.false_positives} + {one.false_negatives}",
            f"{one.mu:.3f}" if math.isfinite(one.mu) else "none",
            f"{one.mu_low:.3f}",
            f"{epsilon}, {one.epsilon_low_gaussian:.2f}",
            _verdict(one.breach),
        )
    table.add_section()
    for check in result.noise:
        found = f"{100.0 * check.ratio:.2f} %"
        name = f"noise, {check.layer or check.part}"
        table.add_row(name, "", "", "", "100 %", found, "", _verdict(check.breach))
    return table


def draw_audit(folder: RunFolder, result: AuditResult) -> list[Path]:
    """The scores of both neighbours for each canary, and what is claimed against what is proven."""
    mains = [finding for finding in result.findings if finding.layer is None]
    canvas, axes = figure(2, 2)
    for axis, finding in zip(axes.flat, mains, strict=False):
        _scores(axis, finding)
    _bounds(axes[1][1], result)
    return save(canvas, folder.path / "figures", "audit")


def _scores(axis: Axes, finding: Finding) -> None:
    most = float(np.abs(finding.scores).max())
    edge = min(most, _SHOWN) if finding.canary != "partial" else most
    edges = np.linspace(-edge, edge, 41).tolist()
    for scores, colour, name in zip(
        finding.scores, (_MINUS, _PLUS), ("canary −", "canary +"), strict=True
    ):
        inside = np.clip(scores, -edge, edge)
        axis.hist(inside, edges, density=True, color=colour, alpha=0.55, label=name)
    if math.isfinite(finding.mu) and finding.reach_mu <= 1.01 * finding.mu:
        x = np.linspace(-edge, edge, 200)
        for side in (-0.5, 0.5):
            density = np.exp(-((x - side * finding.mu) ** 2) / 2.0) / math.sqrt(2.0 * math.pi)
            legend = "at worst, as claimed" if side > 0 else None
            axis.plot(x, density, color=_CLAIM, linewidth=1.2, label=legend)
    axis.axvline(0.0, color=_CLAIM, linestyle=":", label="threshold")
    axis.legend(frameon=False, fontsize=8)
    wrong = finding.false_positives + finding.false_negatives
    title = f"{finding.name}: {wrong} of {2 * finding.trials:,} guesses wrong"
    label(axis, title, "score, in standard deviations of the noise", "density")


def _bounds(axis: Axes, result: AuditResult) -> None:
    findings = list(result.findings)[::-1]
    heights = np.arange(len(findings))
    colours = [_BREACH if finding.breach else _MINUS for finding in findings]
    axis.barh(heights, [f.mu_low for f in findings], color=colours, height=0.6, label="proven")
    for height, finding in zip(heights, findings, strict=True):
        if math.isfinite(finding.mu):
            axis.plot([finding.mu] * 2, [height - 0.4, height + 0.4], color=_CLAIM, linewidth=2.0)
    axis.set_yticks(heights, [f.name for f in findings], fontsize=8)
    title = "Proven mu (bars) and claimed (lines)" if result.claimed else "Proven mu; none claimed"
    label(axis, title, "mu, a round", "")


def _verdict(breach: bool) -> str:
    return "[bold red]BREACH[/]" if breach else "ok"


def verdict(result: AuditResult) -> list[str]:
    """What was found, in plain sentences."""
    worst, sentences = result.worst, []
    if not result.claimed:
        sentences.append(
            f"Protection {result.protection} claims nothing, so no canary can break its claim. At "
            f"sigma {worst.sigma:g} one record shows with mu {worst.mu_low:.2f} at least, epsilon "
            f"{worst.epsilon_low:.2f} at delta {result.delta:g} at least."
        )
    else:
        sentences.append(
            f"Claimed: mu {worst.mu:.3f}, epsilon {worst.epsilon:.2f} at delta {result.delta:g}, "
            f"a round; hidden: {result.protects}. Proven by attack: mu {worst.mu_low:.3f}, epsilon "
            f"{worst.epsilon_low_gaussian:.2f} at least for Gaussian noise "
            f"({worst.epsilon_low:.2f} for any)."
        )
    if result.passed:
        sentences.append("PASSED: nothing contradicts the claim.")
    else:
        sentences.append(f"BREACH, shown by: {', '.join(result.breaches)}.")
    sentences.append(
        f"A correct protection is accused with probability {1.0 - result.confidence:.2g} at most."
    )
    best = max(one.mu_low / one.mu for one in result.findings if one.layer is None)
    if result.claimed and best < WEAK:
        sentences.append(
            f"The canaries are weak: they prove {100 * best:.0f} % of the claim at best, and would "
            f"miss noise that is {100 * (1 - WEAK):.0f} % too small. Use more trials, or omit "
            "--sigma."
        )
    if not result.secure_noise:
        sentences.append("The noise came from a fixed seed: simulated, NOT PRIVATE.")
    return sentences
