"""``noisemarket audit``: attack the protection that really runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from typer import Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import load, new_folder, paths, progress, show

if TYPE_CHECKING:
    from rich.table import Table

    from noisemarket.study.audit import AuditResult

WEAK = 0.8
"""Share of the claim that a good canary proves of a right protection at least."""
_SIDE, _CLASSES = 28, 10


def audit(
    file: opt.File = None,
    preset: opt.Preset = None,
    settings: opt.Settings = None,
    sigma: Annotated[
        float | None,
        Option(help="Noise scale to audit at; by default one at which bugs show best."),
    ] = None,
    trials: Annotated[int, Option(help="Uploads per canary and arm.")] = 1000,
    seed: opt.Seed = None,
    out: opt.Out = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
) -> int:
    """Attack the protection that runs in training, and compare what leaks with what is claimed."""
    from noisemarket.federated.features import Edges
    from noisemarket.federated.models.linear import LinearMaker
    from noisemarket.market.orders import network_of
    from noisemarket.privacy.noise import KeyedNoise, SimulatedNoise
    from noisemarket.scenario import account
    from noisemarket.study.audit import Audit, Target

    scenario = load(file, preset, settings, seed)
    target = Target(LinearMaker(_CLASSES, Edges.dimension), (Edges.dimension,), _CLASSES)
    if scenario.training.model == "cnn":
        network = network_of(scenario.training, _CLASSES, _SIDE)
        target = Target(network, (1, _SIDE, _SIDE), _CLASSES)
    attack = Audit(
        account.protection_of(scenario),
        sigma=sigma,
        trials=trials,
        delta=scenario.privacy.delta,
        seed=scenario.seed,
        target=target,
    )
    secure = scenario.privacy.noise == "secure"
    noise = KeyedNoise(KeyedNoise.new_key()) if secure else SimulatedNoise(scenario.seed)
    with new_folder(scenario, "audit", out, overwrite, file) as folder:
        with progress("uploads") as bar:
            line = bar.add_task("auditing", total=attack.uploads)
            result = attack.run(noise, lambda more: bar.update(line, advance=more))
        folder.write_json("summary.json", result.to_dict())
        folder.status("complete", passed=result.passed, secure_noise=result.secure_noise)
    show(as_json, result.to_dict(), _table(result), *_verdict(result), *paths(folder))
    return int(not result.passed)


def _table(result: AuditResult) -> Table:
    """Every canary and every check of noise: claimed, found, verdict."""
    from noisemarket.show.style import table_of

    title = f"Audit of {result.protection}, {result.trials:,} trials an arm"
    table = table_of(
        title, "canary", "records", "sigma", "wrong guesses", "claimed mu", "proven mu",
        "claimed, proven epsilon",
    )  # fmt: skip
    table.add_column("verdict")
    words = {True: "[bold red]BREACH[/]", False: "ok"}
    for one in result.findings:
        epsilon = f"{one.epsilon:.2f}" if math.isfinite(one.epsilon) else "none"
        table.add_row(
            one.name,
            f"{one.records}",
            f"{one.sigma:.4g}",
            f"{one.false_positives} + {one.false_negatives}",
            f"{one.mu:.3f}" if math.isfinite(one.mu) else "none",
            f"{one.mu_low:.3f}",
            f"{epsilon}, {one.epsilon_low:.2f}",
            words[one.breach],
        )
    table.add_section()
    for check in result.noise:
        found = f"{100.0 * check.ratio:.2f} %"
        table.add_row(check.name, "", "", "", "100 %", found, "", words[check.breach])
    return table


def _verdict(result: AuditResult) -> list[str]:
    """What was found, in plain sentences."""
    worst = result.worst
    if result.claimed:
        claim = (
            f"Claimed: mu {worst.mu:.3f}, epsilon {worst.epsilon:.2f} at delta {result.delta:g}, "
            f"a round; hidden: {result.protects}. Proven by attack: mu {worst.mu_low:.3f}, epsilon "
            f"{worst.epsilon_low:.2f} at least."
        )
    else:
        claim = (
            f"Protection {result.protection} claims nothing, so no canary can break its claim. At "
            f"sigma {worst.sigma:g} one record shows with mu {worst.mu_low:.2f} at least, epsilon "
            f"{worst.epsilon_low:.2f} at delta {result.delta:g} at least."
        )
    sentences = [claim, "PASSED: nothing contradicts the claim."]
    if not result.passed:
        sentences[1] = f"BREACH, shown by: {', '.join(result.breaches)}."
    sentences.append(
        f"A correct protection is accused with probability {1.0 - result.confidence:.2g} at most."
    )
    best = max(one.mu_low / one.mu for one in result.findings)
    if result.claimed and best < WEAK:
        sentences.append(
            f"The canaries are weak: they prove {100 * best:.0f} % of the claim at best, and would "
            f"miss noise that is {100 * (1 - WEAK):.0f} % too small. Use more trials, or omit "
            "--sigma."
        )
    if not result.secure_noise:
        sentences.append("The noise came from a fixed seed: simulated, NOT PRIVATE.")
    return sentences
