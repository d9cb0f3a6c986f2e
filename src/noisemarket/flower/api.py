"""All that is used of Flower, from its public modules alone.

``flwr.serverapp`` is not here: a curator's process has it loaded, an owner's need not.
"""

from __future__ import annotations

from noisemarket.errors import MissingExtra

try:
    from flwr.app import (
        Array,
        ArrayRecord,
        ConfigRecord,
        Context,
        Error,
        Message,
        MetricRecord,
        RecordDict,
    )
    from flwr.clientapp import ClientApp
except ModuleNotFoundError as missing:
    raise MissingExtra("The Flower engine", "flower") from missing

__all__ = [
    "Array",
    "ArrayRecord",
    "ClientApp",
    "ConfigRecord",
    "Context",
    "Error",
    "Message",
    "MetricRecord",
    "RecordDict",
]
