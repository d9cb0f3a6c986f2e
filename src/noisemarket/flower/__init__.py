"""The market on many machines: Flower's SuperLink and SuperNodes instead of worker processes.

On an owner's side ``owner_app`` is its ClientApp; what it does is in the package ``owner``. On the
curator's side ``curator_app`` runs a whole market in a ServerApp, over a ``channel`` to the
SuperNodes: ``owner_messages`` says what is in each message. For an app and a model of one's own
there is ``client_mod``. ``simulation`` runs a whole market on this machine. Only Flower's
public modules are used.
"""

import os
from importlib.util import find_spec

from noisemarket.errors import MissingExtra

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # Flower reads it when it is imported


def need_flower(*, simulation: bool = False) -> None:
    """Name the extra where Flower is not installed, or is one without the modules used here.

    For commands, before they import what imports Flower. An app of Flower's has it. An owner's host
    needs no ``simulation``, which is by Ray.
    """
    try:
        found = [find_spec(f"flwr.{name}") for name in ("app", "clientapp", "serverapp")]
    except ModuleNotFoundError:
        found = [None]
    if None in found or (simulation and find_spec("ray") is None):
        raise MissingExtra("The Flower engine", "flower")
