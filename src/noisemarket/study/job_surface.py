"""The loss surface of a job: one that was measured for it, or a small one measured now.

Accuracy under noise depends on how many owners there are, how many records they have, how long and
how they train, and on the data. A surface of another job misleads the curator: with ten owners
instead of a hundred it is points off. So ``surface = "auto"`` looks for a surface of this very job,
among those in the package and those measured before, and else measures a small one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from noisemarket.federated.data import Dataset
from noisemarket.federated.data_files import PUBLIC
from noisemarket.files import write_atomic
from noisemarket.scenario import Scenario
from noisemarket.scenario.surface_file import fingerprint, shipped_surfaces

SHARES_OF_NOISE = (0.0, 1 / 12, 1 / 6, 1 / 3, 1 / 2, 3 / 4, 1.0)
"""The noise of all owners at the measured points, as shares of sigma_max."""
SELLERS = ((0.05, 1 / 6), (0.1, 1 / 12), (0.25, 1 / 6), (0.5, 1 / 3))
"""Mixed points: the share of the owners that sells, and the noise they keep, likewise."""
SEEDS = 2
_REMEDY = {
    "features": "With surface = auto one is measured for this job.",
    "cnn": "noisemarket calibrate measures one for this job.",
}
MOST_RECORDS = 60_000
"""Records that stand in for private ones, at most: they are drawn with replacement."""


@dataclass(frozen=True)
class JobSurface:
    """A scenario with its surface named, and a sentence on where that comes from.

    ``fits``: it was measured for this job, or the user brought it.
    """

    scenario: Scenario
    measured_now: bool
    remark: str
    fits: bool


def with_surface(
    scenario: Scenario,
    *,
    workers: int | None = None,
    stop: Callable[[], bool] | None = None,
    watch: Callable[[int, int], object] = lambda done, total: None,
) -> JobSurface:
    """The scenario with a surface that was measured for its own job.

    A surface that the scenario names is used as it is. With ``auto``, one that fits is looked for;
    if there is none, a small one is measured and kept for later, unless the model is a network,
    which would take an hour. Records of public data are trained on. In place of private records
    the curator's own test records are used: one half, drawn with replacement, is dealt to simulated
    owners, and the other half tests the model.

    Example:
        ready = nm.with_surface(nm.Scenario.from_preset("market", owners=10))
        result = nm.negotiate(ready.scenario)
    """
    if scenario.game.surface != "auto":
        return JobSurface(scenario, False, *_known(scenario))
    betas = _betas(scenario)
    data = None
    if scenario.training.data not in PUBLIC:
        from noisemarket.study.trainings import data_of

        data = data_of(scenario)
    job = fingerprint(scenario, data.sha256 if data else "")
    for name, text in shipped_surfaces().items():
        if _fits(text, job, betas):
            return JobSurface(_named(scenario, name), False, f"Surface {name}: of this job.", True)
    folder = surface_folder()
    if folder is None or scenario.training.model != "features":
        return JobSurface(scenario, False, *_known(scenario))
    file = folder / f"{job[:24]}-{'-'.join(f'{beta:g}' for beta in betas)}.toml"
    if file.exists() and _fits(file.read_text(encoding="utf-8"), job, betas):
        return JobSurface(_named(scenario, str(file)), False, f"Surface {file}: of this job.", True)
    text, points, off = _measure(scenario, data, betas, workers, stop, watch)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, text)
    fit = f"which it fits to {off:.1f} points of accuracy (root mean square)"
    remark = f"Surface {file}: measured for this job by {points} trainings, {fit}."
    return JobSurface(_named(scenario, str(file)), True, remark, True)


def surface_folder() -> Path | None:
    """Where measured surfaces are kept; None where none are to be measured.

    ``NOISEMARKET_SURFACES`` names the folder, or says ``off``; by default it is
    ``noisemarket/surfaces`` in the user's cache.
    """
    given = os.environ.get("NOISEMARKET_SURFACES", "")
    if given == "off":
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(cache) / "noisemarket" / "surfaces"


def _known(scenario: Scenario) -> tuple[str, bool]:
    """What is known of a surface that the scenario names or falls back on, and whether it fits."""
    name = scenario.surface_name()
    text = shipped_surfaces().get(name)
    if text is None:
        return f"Surface {name}: as the scenario says.", True
    if _fits(text, fingerprint(scenario, "another"), _betas(scenario)):
        return f"Surface {name}: of this job.", True
    of = tomllib.loads(text)["provenance"]
    return (
        f"Surface {name} was measured for another job ({of['owners']} owners, "
        f"{of['training']['rounds']} rounds, {of['privacy']['protection']}, {of['data']}): the "
        f"accuracy that it predicts may be several points off. {_REMEDY[scenario.training.model]}"
    ), False


def _betas(scenario: Scenario) -> tuple[float, ...]:
    """The non-IID degrees to measure: all owners' one, or the least, the median and the most."""
    people = scenario.population
    if isinstance(people.beta, float) and not people.file:  # known without drawing the owners
        found = np.array([people.beta])
    else:
        beta = scenario.environment(secrets=False).population.beta
        found = np.quantile(beta, [0.0, 0.5, 1.0])
    return tuple(dict.fromkeys(float(f"{one:.3g}") for one in found))


def _fits(text: str, job: str, betas: tuple[float, ...]) -> bool:
    """Whether a surface file was measured for this job, with betas around these."""
    if job not in text:  # most files are of other jobs, and long
        return False
    try:
        of = tomllib.loads(text).get("provenance", {})
    except tomllib.TOMLDecodeError:
        return False
    measured = of.get("betas", [])
    inside = bool(measured) and min(measured) <= min(betas) and max(betas) <= max(measured)
    return of.get("job") == job and inside


def _named(scenario: Scenario, surface: str) -> Scenario:
    return scenario.model_copy(
        update={"game": scenario.game.model_copy(update={"surface": surface})}
    )


def _measure(
    scenario: Scenario,
    data: Dataset | None,
    betas: tuple[float, ...],
    workers: int | None,
    stop: Callable[[], bool] | None,
    watch: Callable[[int, int], object],
) -> tuple[str, int, float]:
    """The text of a surface file, the number of points, and how far the fit is from them."""
    # All that trains is slow to import, and most jobs have a surface.
    from noisemarket.study.calibrate import Grid, points_of, simulated, tasks_of
    from noisemarket.study.fit import Calibration
    from noisemarket.study.trainings import TrainingFile, data_of

    owners, most = scenario.population.owners, scenario.game.sigma_max
    mixed = {(share, most * left) for share, left in SELLERS if 0 < round(share * owners) < owners}
    by_noise = scenario.training.weighting == "noise"
    grid = Grid(
        tuple(most * share for share in SHARES_OF_NOISE), betas, SEEDS,
        tuple(sorted(mixed)) if by_noise else (),
    )  # fmt: skip
    if data is None:
        allowed = data_of(scenario)
    else:  # where owners are on their own hosts the population says how many records they have
        stated = scenario.environment(secrets=False).population.data_size
        allowed = stand_in(data, len(data.train_labels) or int(stated.sum()))
    free = simulated(scenario)
    tasks, file = tasks_of(free, grid), TrainingFile(None)
    file.train(free, [*tasks.values()], data=allowed, workers=workers, stop=stop, watch=watch)
    points = points_of(tasks, file.results)
    found = Calibration("job", "noisemarket run", len(tasks), points, allowed.classes)
    text = found.surface_file(scenario, data.sha256 if data else "")
    assert text is not None
    assert found.fit is not None  # there are enough sigmas
    return text, len(points), found.fit.rms_accuracy


def stand_in(data: Dataset, records: int, seed: int = 0) -> Dataset:
    """The curator's test records in place of the owners': a half to train on, a half to test.

    The first is drawn with replacement until it has as many ``records`` as the owners.
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(data.test_labels))
    train, test = np.array_split(shuffled, 2)
    drawn = rng.choice(train, min(records, MOST_RECORDS))
    images, labels = data.test_images, data.test_labels
    return replace(
        data, train_images=images[drawn], train_labels=labels[drawn],
        test_images=images[test], test_labels=labels[test], owners=(), holders=None,
    )  # fmt: skip
