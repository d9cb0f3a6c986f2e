"""``noisemarket audit``: attack the protection that really runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from noisemarket.audit import (
    AuditResult,
    AuditSettings,
    Buggy,
    Target,
    bugs_of,
    controls,
    prepare,
)
from noisemarket.audit.attack import LEAST_SIGMA, uploads
from noisemarket.audit.trials import Watch
from noisemarket.cli.common import Request, console, keep_scenario, progress
from noisemarket.errors import BadInput
from noisemarket.federated.protections import Protection
from noisemarket.privacy.noise import KeyedNoise, NoiseSource, SimulatedNoise
from noisemarket.report.audit_report import audit_table, controls_table, draw_audit
from noisemarket.runfolder import RunFolder
from noisemarket.scenario import Scenario
from noisemarket.training import protection_of
from noisemarket.training.orders import network_of

_SIDE, _CLASSES = 28, 10
TRIALS, CONTROL_TRIALS = 1000, 400


@dataclass(frozen=True)
class AuditOptions:
    """The options of this command alone, as given; None where they were not."""

    sigma: float | None
    trials: int | None
    confidence: float
    bug: str | None
    controls: bool


def run(request: Request, asked: AuditOptions) -> int:
    """Audit, write the run folder and print what was found; the exit code."""
    if asked.controls and asked.bug is not None:
        raise BadInput("--bug", asked.bug, "give either --bug or --controls.")
    scenario = request.scenario()
    right, settings = protection_of(scenario), _settings(scenario, asked)
    if asked.controls:
        return _controls(request, scenario, right, settings)
    prepared = prepare(right if asked.bug is None else Buggy(right, asked.bug), settings)
    with _folder(request, scenario) as folder:
        keep_scenario(folder, scenario)
        with _watched(uploads(settings.trials)) as watch:
            result = prepared.run(_noise(scenario), watch)
        folder.write_json("summary.json", result.to_dict())
        figures = draw_audit(folder, result)
        folder.status("complete", passed=result.passed, secure_noise=result.private)
    if request.json:
        print(json.dumps(result.to_dict(), allow_nan=False))
        return int(not result.passed)
    out = console()
    out.print(audit_table(result))
    for sentence in verdict(result):
        out.print(sentence, soft_wrap=True)
    out.print(f"Run folder: {folder.path}")
    pictures = ", ".join(str(path) for path in figures if path.suffix == ".png")
    out.print(f"Figures: {pictures}", soft_wrap=True)
    return int(not result.passed)


def _controls(
    request: Request, scenario: Scenario, right: Protection, settings: AuditSettings
) -> int:
    total = uploads(settings.trials) * (1 + len(bugs_of(right)))
    with _watched(total) as watch:
        audits = controls(right, settings, _noise(scenario), watch)
        with _folder(request, scenario) as folder:
            keep_scenario(folder, scenario)
            found = list(audits)
            good = all(control.as_hoped for control in found)
            document = {
                "protection": right.name,
                "as_hoped": good,
                "trials": settings.trials,
                "confidence": settings.confidence,
                "controls": [control.to_dict() for control in found],
            }
            folder.write_json("summary.json", document)
            folder.status("complete", passed=good)
    if request.json:
        print(json.dumps(document, allow_nan=False))
    else:
        out = console()
        out.print(controls_table(right.name, found))
        out.print(f"Run folder: {folder.path}")
    return int(not good)


def _folder(request: Request, scenario: Scenario) -> RunFolder:
    """To be opened when nothing is left to refuse: an earlier run in it is gone then."""
    return request.folder(scenario, f"{scenario.preset}-audit")


@contextmanager
def _watched(total: int) -> Iterator[Watch]:
    with progress("uploads") as bar:
        line = bar.add_task("auditing", total=total)
        yield lambda canary, more: bar.update(line, advance=more, description=f"auditing, {canary}")


def _noise(scenario: Scenario) -> NoiseSource:
    """Noise as the market's: by a cipher under a key, which is drawn for this audit alone."""
    if scenario.privacy.noise == "secure":
        return KeyedNoise(KeyedNoise.new_key())
    return SimulatedNoise(scenario.seed)


def _settings(scenario: Scenario, asked: AuditOptions) -> AuditSettings:
    maker = network_of(scenario.training, _CLASSES, _SIDE)
    default = CONTROL_TRIALS if asked.controls else TRIALS
    return AuditSettings(
        sigma=asked.sigma,
        trials=default if asked.trials is None else asked.trials,
        confidence=asked.confidence,
        delta=scenario.privacy.delta,
        seed=scenario.seed,
        target=Target(maker, (1, _SIDE, _SIDE), _CLASSES),
    )


def verdict(result: AuditResult) -> list[str]:
    """What was found, in plain sentences."""
    worst, said = result.worst, []
    if not result.claimed:
        said.append(
            f"Protection {result.protection} claims nothing, so no canary can break its claim. At "
            f"sigma {worst.sigma:g} one record shows with mu {worst.mu_low:.2f} at least, epsilon "
            f"{worst.epsilon_low:.2f} at delta {result.delta:g} at least: the most that "
            f"{result.trials:,} trials can prove."
            if worst.false_positives + worst.false_negatives == 0
            else f"Protection {result.protection} claims nothing. One record shows with mu "
            f"{worst.mu_low:.2f} at least."
        )
    else:
        said.append(
            f"Claimed: mu {worst.mu:.3f}, epsilon {worst.epsilon:.2f} at delta {result.delta:g}, "
            f"a round; hidden: {result.protects}. Proven by attack: mu {worst.mu_low:.3f}, epsilon "
            f"{worst.epsilon_low_gaussian:.2f} at least for Gaussian noise "
            f"({worst.epsilon_low:.2f} for any)."
        )
    if result.passed:
        said.append("PASSED: nothing found speaks against the claim.")
    else:
        said.append(f"BREACH, shown by: {', '.join(result.breaches)}.")
    said.append(
        f"A right protection is accused with probability {result.false_alarm:.2g} at most "
        f"(asked for: {1.0 - result.confidence:.2g})."
    )
    power = max(finding.power for finding in result.findings if finding.layer is None)
    if result.claimed:
        said.append(f"20 % too little noise shows in the best canary with probability {power:.2g}.")
        if power < 0.5:
            said.append(
                "The canaries are weak here: take more trials, or leave --sigma out. The check of "
                f"the noise alone holds at any sigma from {LEAST_SIGMA:.2g} on."
            )
    if not result.private:
        said.append("The noise came from a fixed seed: simulated, NOT PRIVATE.")
    return said
