"""Which owner holds which data, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from noisemarket.federated.partition import FloatArray, IntArray, Partition, label_entropy
from noisemarket.show.style import figure, label, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONG = 3  # letters of a name that is written upwards
_MOST_NAMED = 60
"""Owners that are named on the axis, at most."""
_INK = "#1f5fa8"
_QUIET = "#8a8a8a"


@dataclass(frozen=True, eq=False)
class Holdings:
    """Owners' indices and their records by class, in the order in which they are drawn.

    Owners stand beside those of the same main class, those with most of it first, so that uneven
    holdings show as blocks and even ones as level bands. ``effective_classes`` is the exponential
    of the label entropy, from 1 to all; ``whole`` the same of all records: what an IID owner has.
    """

    owner: IntArray
    counts: IntArray
    effective_classes: FloatArray
    whole: float


def holdings(partition: Partition, labels: ArrayLike) -> Holdings:
    """Who holds what, in drawing order."""
    counts = partition.label_counts(labels)
    share = counts / counts.sum(axis=1, keepdims=True)
    order = np.lexsort((-share.max(axis=1), share.argmax(axis=1)))
    return Holdings(
        owner=order.astype(np.int64),
        counts=counts[order],
        effective_classes=np.exp(label_entropy(counts[order])),
        whole=float(np.exp(label_entropy(counts.sum(axis=0, keepdims=True))[0])),
    )


def draw_partition(
    folder: Path, partition: Partition, labels: ArrayLike, names: Sequence[str] = ()
) -> list[Path]:
    """Each owner's records by class, of how many classes in effect, and how many there are."""
    shown = holdings(partition, labels)
    owners, classes = shown.counts.shape
    canvas, axes = figure(3, size=(4.4, 3.8))
    wide, evenness, sizes = axes[0]
    wide.get_gridspec().set_width_ratios([2.6, 1.0, 1.0])
    _draw_map(canvas, wide, shown)
    wide.grid(visible=False)
    if owners <= _MOST_NAMED:
        called = [names[owner] if names else str(owner) for owner in shown.owner.tolist()]
        long = max(map(len, called)) > _LONG
        wide.set_xticks(range(owners), called, rotation=90 if long else 0)
        wide.tick_params(axis="x", length=0, labelsize=9 if owners <= 25 else 7)
    named = "owner" if owners <= _MOST_NAMED else f"{owners:,} owners"
    label(wide, "Who holds what", f"{named}, sorted by main class", "class")

    _draw_curve(evenness, shown.effective_classes)
    evenness.axhline(shown.whole, color=_QUIET, linestyle="--", linewidth=1)
    evenness.text(98, shown.whole, "IID", color=_QUIET, fontsize=9, va="bottom", ha="right")
    evenness.set_ylim(0, classes * 1.08)
    label(evenness, "Classes per owner", "owners, %, fewest first", "effective classes")
    records = shown.counts.sum(axis=1)
    _draw_curve(sizes, records)
    sizes.set_ylim(0, float(records.max()) * 1.08)
    label(sizes, "Records per owner", "owners, %, fewest first", "records")
    return save(canvas, folder, "partition")


def _draw_map(canvas: Any, axis: Axes, shown: Holdings) -> None:
    """A column for each owner, darker where more of its records are.

    The scale is the same in every figure and finer at the low end, so that both one class for
    each owner and almost even shares can be read.
    """
    from matplotlib.colors import PowerNorm

    owners, classes = shown.counts.shape
    share = 100.0 * shown.counts / shown.counts.sum(axis=1, keepdims=True)
    # Shrinking an image smooths it in both directions: fields of many pixels keep their edges.
    image = axis.imshow(
        share.T.repeat(1 + 400 // classes, axis=0).repeat(1 + 1000 // owners, axis=1),
        aspect="auto",
        origin="lower",
        cmap="Blues",
        norm=PowerNorm(0.5, 0, 100),
        extent=(-0.5, owners - 0.5, -0.5, classes - 0.5),
    )
    if classes <= 10:
        axis.set_yticks(range(classes))
    bar = canvas.colorbar(image, ax=axis, pad=0.015, aspect=28, ticks=[0, 1, 5, 10, 25, 50, 100])
    bar.set_label("% of the owner's records")
    bar.minorticks_off()
    bar.outline.set_visible(False)


def _draw_curve(axis: Axes, values: FloatArray | IntArray) -> None:
    """The values of all owners, lowest first: one step curve serves 5 and 1,000 owners."""
    part = np.linspace(0.0, 100.0, len(values) + 1)
    axis.stairs(np.sort(values), part, baseline=None, color=_INK, linewidth=1.6)
    axis.set_xlim(0, 100)
