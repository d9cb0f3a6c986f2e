"""Models: what is trained, behind one interface over flat vectors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from noisemarket.federated.models.linear import LinearMaker
from noisemarket.federated.models.model import ModelMaker


def maker_of(settings: Mapping[str, Any]) -> ModelMaker:
    """The maker of settings that may have come as JSON; inverse of ``ModelMaker.settings``."""
    if settings.get("kind") == "linear":
        return LinearMaker(int(settings["classes"]), int(settings["dimension"]))
    from noisemarket.federated.models.cnn import cnn_of
    from noisemarket.federated.models.torch_model import TorchMaker

    return TorchMaker(partial(cnn_of, settings))
