"""The report of an audit."""

from __future__ import annotations

import math

from rich.table import Table

from noisemarket.show.style import table_of
from noisemarket.study.audit import AuditResult

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
