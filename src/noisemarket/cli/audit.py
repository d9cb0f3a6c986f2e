"""``noisemarket audit``: attack the protection that really runs."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from noisemarket.cli import options as opt
from noisemarket.cli.common import load, new_folder, paths, progress, show

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
    confidence: Annotated[
        float, Option(help="Least probability that a correct protection passes.")
    ] = 0.999,
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
    from noisemarket.show.audit_report import audit_table, verdict
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
        confidence=confidence,
        delta=scenario.privacy.delta,
        seed=scenario.seed,
        target=target,
    )
    secure = scenario.privacy.noise == "secure"
    noise = KeyedNoise(KeyedNoise.new_key()) if secure else SimulatedNoise(scenario.seed)
    with new_folder(scenario, "audit", out, overwrite, file) as folder:
        with progress("uploads") as bar:
            line = bar.add_task("auditing", total=attack.uploads)

            def watch(canary: str, more: int) -> None:
                bar.update(line, advance=more, description=f"auditing, {canary}")

            result = attack.run(noise, watch)
        folder.write_json("summary.json", result.to_dict())
        folder.status("complete", passed=result.passed, secure_noise=result.secure_noise)
    said = *verdict(result), *paths(folder)
    show(as_json, result.to_dict(), audit_table(result), *said)
    return int(not result.passed)
