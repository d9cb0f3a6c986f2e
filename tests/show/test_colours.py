"""Mechanisms are told apart by those who see colours otherwise, and in print by mark and dash."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from noisemarket.show.style import LOOKS, look_of

COLOURS = {name: look.colour for name, look in LOOKS.items()}

SEEN = {
    "normally": np.eye(3),
    # Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB
    "by protans": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "by deutans": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
APART = 11.0
"""The least difference (CIE 1976) of two colours in one figure."""


def lab(colour: str, seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """CIE Lab of a colour as somebody sees it."""
    given = np.array([int(colour[at : at + 2], 16) / 255.0 for at in (1, 3, 5)])
    linear = np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4)
    part = TO_XYZ @ np.clip(seen @ linear, 0.0, 1.0) / WHITE
    root = np.where(part > 216 / 24389, np.cbrt(part), (24389 / 27 * part + 16.0) / 116.0)
    x, y, z = root
    return np.array([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)])


def test_lab_by_known_values() -> None:
    np.testing.assert_allclose(lab("#ffffff", SEEN["normally"]), [100.0, 0.0, 0.0], atol=0.02)
    np.testing.assert_allclose(lab("#ff0000", SEEN["normally"]), [53.24, 80.09, 67.20], atol=0.05)
    grey = lab("#777777", SEEN["by protans"])
    np.testing.assert_allclose(grey, lab("#777777", SEEN["normally"]), atol=0.1)


@pytest.mark.parametrize("seen", SEEN)
def test_any_two_mechanisms_are_apart(seen: str) -> None:
    for first, second in combinations(COLOURS, 2):
        gap = np.linalg.norm(lab(COLOURS[first], SEEN[seen]) - lab(COLOURS[second], SEEN[seen]))
        assert gap >= APART, f"{first} and {second}, seen {seen}: {gap:.1f}"


def test_names_can_be_read_on_white() -> None:
    """Names of curves are written in their colour: dark enough on white."""
    for name, colour in COLOURS.items():
        assert lab(colour, SEEN["normally"])[0] < 62.0, name


def test_marks_are_all_different() -> None:
    marks = {look.mark for look in LOOKS.values()}
    assert len(marks) == len(LOOKS)
    assert look_of("mine")["marker"] not in marks, "a mechanism from outside"
