"""The probe of an audit as a module of torch."""

from __future__ import annotations

import torch
from torch import nn


class TorchProbe(nn.Module):
    """``LinearProbe`` with weights in several parameters, as those of a network are."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.zeros(width)) for _ in range(layers)])

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Scores of two classes for a batch (batch, 1 + dimension)."""
        mark, vectors = records[:, 0], records[:, 1:]
        along = vectors @ torch.cat(list(self.parts))
        score = torch.where(mark > 0.0, along.abs() - mark, along)
        return torch.stack((score, -score), dim=1)
