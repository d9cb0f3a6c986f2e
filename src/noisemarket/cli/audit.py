"""``noisemarket audit``: attack the protection that really runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from noisemarket.cli.app import AuditOptions
from noisemarket.cli.common import paths, progress, show
from noisemarket.federated.features import Edges
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.market.orders import network_of
from noisemarket.privacy.noise import KeyedNoise, NoiseSource, SimulatedNoise
from noisemarket.scenario import Scenario
from noisemarket.scenario.account import protection_of
from noisemarket.show.audit_report import audit_table, draw_audit
from noisemarket.study.audit import Audit, AuditResult, Target, Watch

_SIDE, _CLASSES = 28, 10
WEAK = 0.8
"""Share of the claim that a good canary proves of a right protection at least."""


def run(options: AuditOptions) -> int:
    """Audit, write the run folder and print what was found; the exit code."""
    scenario = options.load()
    audit = Audit(
        protection_of(scenario),
        sigma=options.sigma,
        trials=options.trials,
        confidence=options.confidence,
        delta=scenario.privacy.delta,
        seed=scenario.seed,
        target=_target(scenario),
    )
    with options.folder(scenario, "audit") as folder:
        with _watched(audit.uploads) as watch:
            result = audit.run(_noise(scenario), watch)
        folder.write_json("summary.json", result.to_dict())
        figures = draw_audit(folder, result)
        folder.status("complete", passed=result.passed, secure_noise=result.secure_noise)
    where = paths(folder, figures)
    show(options.json, result.to_dict(), audit_table(result), *verdict(result), *where)
    return int(not result.passed)


@contextmanager
def _watched(total: int) -> Iterator[Watch]:
    with progress("uploads") as bar:
        line = bar.add_task("auditing", total=total)
        yield lambda canary, more: bar.update(line, advance=more, description=f"auditing, {canary}")


def _noise(scenario: Scenario) -> NoiseSource:
    """Noise as in the market: from a cipher, with a key drawn for this audit alone."""
    if scenario.privacy.noise == "secure":
        return KeyedNoise(KeyedNoise.new_key())
    return SimulatedNoise(scenario.seed)


def _target(scenario: Scenario) -> Target:
    if scenario.training.model == "cnn":
        network = network_of(scenario.training, _CLASSES, _SIDE)
        return Target(network, (1, _SIDE, _SIDE), _CLASSES)
    return Target(LinearMaker(_CLASSES, Edges.dimension), (Edges.dimension,), _CLASSES)


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
