"""The report of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from noisemarket.federated.partition import Partition
from noisemarket.federated.rounds import RoundResult
from noisemarket.privacy.statement import PrivacyStatement
from noisemarket.report.partition_report import draw_partition
from noisemarket.report.style import figure, label, save, table_of
from noisemarket.runfolder import RunFolder


def training_table(last: RoundResult, statements: Sequence[PrivacyStatement]) -> Table:
    """How good the model is, and what it cost the owners."""
    table = table_of("Training under contract", "what", "value", show_header=False)
    table.add_row("rounds", f"{last.number}")
    table.add_row("test accuracy", f"{last.score.accuracy:.2f} %")
    table.add_row("test loss", f"{last.score.loss:.4f}")
    if last.averaged is not None:
        table.add_row("accuracy of the averaged model", f"{last.averaged.accuracy:.2f} %")
    one = statements[0]
    table.add_row("protection", one.protection)
    rho = np.array([statement.rho_total for statement in statements])
    epsilon = np.array([statement.epsilon for statement in statements])
    if np.isfinite(rho).all():
        table.add_row("hidden", one.protects)
        table.add_row("rho per owner (min, median, max)", _spread(rho))
        table.add_row(f"epsilon at delta {one.delta:g}", _spread(epsilon))
    else:
        table.add_row("privacy", "nothing is guaranteed for at least one owner")
    if one.simulated:
        table.add_row("NOT PRIVATE", "noise from a fixed seed")
    return table


def draw_training(
    folder: RunFolder,
    results: Sequence[RoundResult],
    partition: Partition,
    labels: NDArray[np.int64],
) -> list[Path]:
    """Accuracy and loss over the rounds, and who holds what."""
    figures = folder.path / "figures"
    drawn = draw_partition(figures, partition, labels)
    if not results:
        return drawn
    canvas, axes = figure(2)
    rounds = [result.number for result in results]
    for axis, name, y in (
        (axes[0][0], "accuracy", "test accuracy, %"),
        (axes[0][1], "loss", "loss"),
    ):
        axis.plot(rounds, [getattr(r.score, name) for r in results], ".-", label="global model")
        averaged = [getattr(r.averaged, name) for r in results if r.averaged is not None]
        if len(averaged) == len(rounds):
            axis.plot(rounds, averaged, ".-", label="average of the models")
            axis.legend(frameon=False, fontsize=9)
        label(axis, f"Test {name}", "round", y)
    return save(canvas, figures, "training") + drawn


def _spread(values: NDArray[np.float64]) -> str:
    return f"{values.min():.3g}, {np.median(values):.3g}, {values.max():.3g}"
