"""Names beside the ends of curves: none on another, none outside."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from noisemarket.show.style import direct_labels, figure, heights

PARTS = st.floats(0.0, 1.0)
ENDS = st.lists(st.tuples(st.floats(0.3, 1.0), PARTS), min_size=1, max_size=7, unique=True)


@settings(max_examples=60, deadline=None)
@given(ENDS)
def test_names_do_not_overlap_and_stay_beside_the_axis(points: list[tuple[float, float]]) -> None:
    sizes = [0.05 if at % 3 else 0.1 for at in range(len(points))]
    places = heights(points, sizes)
    for one, other in combinations(range(len(points)), 2):
        assert abs(places[one] - places[other]) >= (sizes[one] + sizes[other]) / 2.0 - 1e-9
    for place, size in zip(places, sizes, strict=True):
        assert place - size / 2.0 >= -1e-9
        assert place + size / 2.0 <= 0.985 + 1e-9


def test_a_leader_changes_no_limits_and_names_are_drawn() -> None:
    canvas, axes = figure(1)
    axis = axes[0][0]
    axis.plot([0, 1, 2], [0, 1, 2])
    axis.plot([0, 1, 4], [0, 1, 2])
    before = axis.get_xlim(), axis.get_ylim()
    direct_labels(axis, {"one": (2.0, 2.0, "#000000"), "other": (4.0, 2.0, "#111111")})
    assert (axis.get_xlim(), axis.get_ylim()) == before
    canvas.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert [text.get_text() for text in axis.texts] == ["one", "other"]
    assert not boxes[0].overlaps(boxes[1])
    assert all(box.y1 <= axis.get_window_extent().y1 + 1 for box in boxes)
    assert np.isfinite([box.y0 for box in boxes]).all()


def test_limits_that_were_never_asked_for_are_those_of_the_curves() -> None:
    """Matplotlib sets them late: before that, a curve at 22 would end far above the axis."""
    canvas, axes = figure(1)
    axis = axes[0][0]
    axis.plot([1, 2], [22.0, 22.5])
    direct_labels(axis, {"one": (2.0, 22.5, "#000000")})
    (name,) = axis.texts
    assert 0.0 <= name.get_position()[1] <= 1.0
    canvas.draw_without_rendering()
