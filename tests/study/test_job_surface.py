"""A job's own surface: found, measured, kept, and never made from private records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.tiny_images import write_images

from noisemarket.federated.data_files import load_data
from noisemarket.scenario import Scenario
from noisemarket.scenario.surface_file import find_surface, fingerprint
from noisemarket.study.job_surface import stand_in, with_surface

pytestmark = pytest.mark.training


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOISEMARKET_SURFACES", str(tmp_path / "surfaces"))
    return tmp_path / "surfaces"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("mnist"), 400, 300)


def small(images: Path, **settings: object) -> Scenario:
    return Scenario.from_preset("market", owners=4, rounds=2, data=str(images), **settings)


class TestWithSurface:
    def test_the_default_job_has_a_shipped_surface(self, cache: Path) -> None:
        found = with_surface(Scenario.from_preset("market"))
        assert not found.measured_now
        assert found.fits
        assert found.scenario.surface_name() == "features-mnist"
        assert not cache.exists()

    def test_none_is_measured_where_that_is_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NOISEMARKET_SURFACES", "off")
        other = Scenario.from_preset("market", owners=10)
        found = with_surface(other)
        assert (found.scenario, found.measured_now, found.fits) == (other, False, False)
        assert "several points off" in found.remark

    def test_a_named_surface_is_used_and_a_wrong_one_is_called_so(self) -> None:
        other = Scenario.from_preset("market", owners=10, surface="features-mnist")
        found = with_surface(other)
        assert found.scenario == other
        assert "several points off" in found.remark

    def test_another_job_is_measured_once(self, images: Path) -> None:
        seen: list[tuple[int, int]] = []
        first = with_surface(small(images), workers=1, watch=lambda *now: seen.append(now))
        again = with_surface(small(images, seed=9, delta=1e-6), workers=1)
        assert (first.measured_now, again.measured_now) == (True, False)
        assert seen[0][0] == 0
        assert seen[-1][0] == seen[-1][1]
        assert first.scenario.surface_name() == again.scenario.surface_name()
        surface = find_surface(first.scenario.surface_name())
        assert surface.quality(0.0, 1.0) >= surface.quality(0.6, 1.0)
        Path(first.scenario.surface_name()).write_text("gamma = [", encoding="utf-8")
        repaired = with_surface(small(images), workers=1)
        assert repaired.measured_now
        assert find_surface(repaired.scenario.surface_name()) == surface

    @pytest.mark.parametrize("change", [{"owners": 5}, {"rounds": 3}, {"clip": 0.5}])
    def test_another_job_has_another_digest(self, images: Path, change: dict[str, object]) -> None:
        other = Scenario.from_preset("market", **({"owners": 4, "rounds": 2} | change))
        own = Scenario.from_preset("market", owners=4, rounds=2)
        assert fingerprint(other, "") != fingerprint(own, "")

    def test_owners_records_are_not_used(self, images: Path) -> None:
        data = load_data(str(images))
        stands = stand_in(data, 400)
        own = {image.tobytes() for image in data.test_images}
        assert {image.tobytes() for image in stands.train_images} <= own
        train = {image.tobytes() for image in stands.train_images}
        assert not train & {image.tobytes() for image in stands.test_images}
        assert len(stands.train_labels) == 400
        assert np.array_equal(stand_in(data, 400).train_labels, stands.train_labels)

    def test_tables_are_stood_in_for_by_simulated_owners(self) -> None:
        hospitals = load_data(str(Path(__file__).parents[2] / "examples" / "hospitals"))
        stands = stand_in(hospitals, 455)
        assert stands.holders is None
        assert stands.features is hospitals.features
        assert len(stands.train_inputs()) == 455
