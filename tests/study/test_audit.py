"""Right protections pass and every seeded bug is caught: a small version of the audit."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.seeded_bugs import BUGS, Buggy, bugs_of
from torch import nn

from noisemarket.cli import main
from noisemarket.errors import BadInput
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.models.model import Model
from noisemarket.federated.models.torch_model import TorchMaker
from noisemarket.federated.protections import (
    DPSGD,
    Paper,
    PerRecord,
    Protection,
    Sharded,
)
from noisemarket.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise
from noisemarket.privacy.zcdp import Neighbours
from noisemarket.study import audit as made
from noisemarket.study.audit import LEAST_SIGMA, Audit, AuditResult, Target, probe_for

pytestmark = pytest.mark.training

SMALL = Target(TorchMaker(partial(CNN, (2, 3), 4, 10, 16)), (1, 16, 16), 10)
PROTECTIONS: dict[str, Protection] = {
    "sharded": Sharded(records_per_shard=2, clip=0.5, steps=2, rate=0.2),
    "per_record": PerRecord(clip=0.5, rate=0.2),
    "dp_sgd": DPSGD(batch=4, rate=0.1, clip=0.5),
    "paper": Paper(batch=8, rate=0.1),
}
WRONG = [(name, bug) for name, right in PROTECTIONS.items() for bug in bugs_of(right)]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def audit(protection: Protection, noise: NoiseSource | None = None, **settings: Any) -> AuditResult:
    return Audit(protection, **settings).run(noise)


def plain_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.Tanh(), nn.Linear(6, 3))


PLAIN = Target(TorchMaker(plain_network), (1, 3, 3), 3)


LINEAR = Target(LinearMaker(3, 9), (9,), 3)
KINDS: dict[str, Model] = {"torch": PLAIN.maker(1), "linear": LINEAR.maker(1)}


def small(
    protection: Protection, trials: int = 30, mu: float = 1.5, target: Target = PLAIN
) -> AuditResult:
    """Few trials prove little, so little is claimed. Noise is from a seed: no verdict by chance."""
    noise = SimulatedNoise(3)
    return audit(protection, mu=mu, trials=trials, confidence=0.9, noise=noise, target=target)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(pytest.param(name, LINEAR, id=f"{name}-linear") for name in PROTECTIONS),
        # A CNN has code of its own where shards are batched and where gradients are clipped.
        *(pytest.param(name, SMALL, id=f"{name}-cnn") for name in ("sharded", "dp_sgd")),
    ],
)
def test_a_right_protection_passes(name: str, target: Target) -> None:
    noise = SimulatedNoise(3)
    result = audit(PROTECTIONS[name], trials=60, confidence=0.99, noise=noise, target=target)
    assert result.passed
    assert result.breaches == ()
    assert not result.secure_noise
    assert result.claimed == (name != "paper")
    assert [finding.name for finding in result.findings] == ["whole", "partial", "network"]
    for finding in result.findings:
        if result.claimed:
            assert finding.mu == pytest.approx(2.5)
            assert finding.mu_low < finding.mu
            assert finding.epsilon_low < finding.epsilon
            assert finding.reach_mu > 0.95 * finding.mu, "the worst case is met"
            assert finding.mu_low > 0.2 * finding.mu, "so the attack is not idle"
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("name", "bug", "target"),
    [
        *(pytest.param(*one, LINEAR, id="-".join([*one, "linear"])) for one in WRONG),
        # Bugs are seeded in the protection, whatever the model: one case goes through torch.
        pytest.param("dp_sgd", "no_clipping", PLAIN, id="dp_sgd-no_clipping-torch"),
    ],
)
def test_every_bug_is_caught(name: str, bug: str, target: Target) -> None:
    result = small(Buggy(PROTECTIONS[name], bug), target=target)
    assert not result.passed
    found = set(result.breaches)
    if name == "paper" or bug in ("less_noise", "noise_over_steps"):  # too few trials for canaries
        assert any(one.startswith("noise") for one in found)
    elif bug == "bare_layer":
        assert any(one.startswith("noise of layer") for one in found)
    else:
        assert found & {"whole", "partial", "network"}
    if bug == "batch_clipping":
        assert "partial" in found
    if bug == "wrong_denominator":
        assert found & {"whole", "partial"}


def test_every_bug_is_seeded_somewhere() -> None:
    assert set(BUGS) == {bug for _, bug in WRONG}
    assert bugs_of(PROTECTIONS["paper"]) == ("less_noise", "bare_layer")


@pytest.mark.slow
def test_missing_noise_shows_in_a_canary_too() -> None:
    buggy = Buggy(PROTECTIONS["sharded"], "less_noise")
    result = small(buggy, trials=400, mu=2.5, target=LINEAR)
    assert "whole" in result.breaches


def test_a_repeated_noise_is_caught() -> None:
    class Stuck(SimulatedNoise):
        def stream(self, *key: int) -> SimulatedNoise:
            return Stuck(self.seed)

    result = audit(
        PROTECTIONS["per_record"], mu=1.5, trials=30, confidence=0.9, noise=Stuck(1), target=PLAIN
    )
    assert "noise of changes between uploads" in result.breaches


def test_secure_noise_is_the_default() -> None:
    result = audit(PerRecord(), trials=20, target=PLAIN)
    assert result.secure_noise


@pytest.mark.parametrize("name", ["sharded", "dp_sgd"])
def test_the_least_sigma_is_not_rounded_off(name: str) -> None:
    right = {"sharded": Sharded(), "dp_sgd": DPSGD()}[name]
    result = audit(right, sigma=LEAST_SIGMA, trials=20, noise=SimulatedNoise(1))
    assert result.passed
    assert min(check.ratio for check in result.noise) > 0.9
    with pytest.raises(BadInput, match="rounded off"):
        audit(right, sigma=0.99 * LEAST_SIGMA)


def test_paper_leaks_and_says_so() -> None:
    result = small(PROTECTIONS["paper"])
    assert not result.claimed
    assert result.protects is None
    assert result.worst.false_positives + result.worst.false_negatives == 0
    document = result.to_dict()
    assert document["mu"] is None
    assert document["mu_low"] > 1.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in PROTECTIONS if name != "paper"])
def test_canaries_stay_within_the_claim_without_noise(name: str, kind: str) -> None:
    """A neighbour pair of one step is never farther apart than the sensitivity, and nearly so."""
    right = PROTECTIONS[name]
    probe = probe_for(KINDS[kind])
    for pair in (made.whole(right, probe, 1), made.partial(right, probe, 1)):
        plain = pair.plain(right)
        apart = np.linalg.norm(plain[1] - plain[0])
        most = right.sensitivity(len(pair.model), len(pair.plus), Neighbours.REPLACE_ONE)
        assert 0.999 * most < apart <= most


def test_partial_canaries_are_neighbours() -> None:
    for right in PROTECTIONS.values():
        pair = made.partial(right, probe_for(KINDS["torch"]), 1)
        assert torch.equal(pair.minus.inputs, pair.plus.inputs)
        assert (pair.minus.labels != pair.plus.labels).sum() == 1


def test_any_module_can_be_audited() -> None:
    bare = Target(
        TorchMaker(lambda: nn.Sequential(nn.Flatten(), nn.Linear(9, 3, bias=False))), (1, 3, 3), 3
    )
    result = audit(Sharded(records_per_shard=2), trials=20, noise=SimulatedNoise(1), target=bare)
    assert result.passed
    assert result.noise[-1].name == "noise of layer 1.weight"


@pytest.mark.parametrize(
    "options",
    [
        {"sigma": 0.0},
        {"sigma": math.nan},
        {"sigma": math.inf},
        {"trials": 19},
        {"confidence": 1.0},
        {"confidence": math.nan},
        {"delta": 0.0},
        {"seed": -1},
    ],
)
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        audit(Sharded(), **options)


def test_too_large_shards_are_refused() -> None:
    with pytest.raises(BadInput, match="at most"):
        audit(Sharded(records_per_shard=5000))


# The command

TINY = ["--set", "widths=[1,2,3]", "--set", "records_per_shard=2"]


def command(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int | str | None, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["audit", *arguments])
    out = capsys.readouterr()
    return ended.value.code, out.out, out.err


def test_command_passes_and_leaves_a_run_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    code, out, _ = command(
        capsys, *TINY, "--set", "noise=simulated", "--trials", "40", "--out", str(folder)
    )
    assert code == 0
    assert "PASSED" in out
    assert "NOT PRIVATE" in out
    assert "canaries are weak" in out
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["passed"] is True
    assert summary["mu_low"] <= summary["mu"]
    assert json.loads((folder / "status.json").read_text())["state"] == "complete"
    assert (folder / "scenario.toml").stat().st_size > 0


@pytest.mark.usefixtures("undrawn")
def test_command_ends_with_1_on_a_breach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    buggy = Buggy(Sharded(records_per_shard=2), "no_clipping")
    monkeypatch.setattr("noisemarket.scenario.account.protection_of", lambda scenario: buggy)
    out = str(tmp_path / "run")
    options = ["--trials", "200", "--out", out]
    code, printed, _ = command(capsys, *TINY, *options, "--json")
    document = json.loads(printed)
    assert code == 1
    assert document["passed"] is False
    assert document["secure_noise"] is True
    assert document["mu_low"] > document["mu"]


@pytest.mark.parametrize(
    "options",
    [
        ["--sigma", "0"],
        ["--sigma", "nan"],
        ["--trials", "1"],
        ["--set", "delta=2"],
        ["--sigma", "1e-12"],
        ["--set", "clip=1e30"],
        ["--set", "clip=1e-30"],
        ["--set", "protection=sharded", "--set", "shard_rate=1e30"],
    ],
)
def test_bad_input_ends_with_2_and_changes_nothing(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, earlier = tmp_path / "run", tmp_path / "earlier"
    earlier.mkdir()
    (earlier / "status.json").write_text("{}")
    for more in (["--out", str(folder)], ["--out", str(earlier), "--overwrite"]):
        code, out, err = command(capsys, *options, *more)
        assert code == 2
        assert out == ""
        assert err.startswith("noisemarket: ")
        assert err.count("\n") == 1
    assert not folder.exists()
    assert [path.name for path in earlier.iterdir()] == ["status.json"]
    assert (earlier / "status.json").read_text() == "{}"


def test_secure_noise_has_no_streams() -> None:
    """What ``Stuck`` above imitates cannot happen to the default source."""
    source = SecureNoise()
    assert (source.stream(1).gaussians(8) != source.stream(1).gaussians(8)).all()
