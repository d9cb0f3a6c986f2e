"""What an owner would sell by the work that a curator offers, before there is a contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noisemarket.errors import BadInput
from noisemarket.federated.protections import PROTECTIONS
from noisemarket.federated.protections.protection import privacy_sold
from noisemarket.game.levels import FloatArray, Levels
from noisemarket.owner.folder import Declined, OwnerFolder


def sold_by(work: Mapping[str, Any], levels: Levels, folder: OwnerFolder) -> FloatArray:
    """The privacy that each saving sells (``privacy_sold``), by the work and the owner's records.

    Raises:
        Declined: the work cannot be accounted for.
    """
    try:
        protection = PROTECTIONS.find(work["protection"]).from_settings(work["settings"])
        return privacy_sold(
            protection,
            [levels.sigma_left(level) for level in range(levels.saving_levels + 1)],
            rounds=work["rounds"],
            records=folder.record_count(),
            neighbours=work["neighbours"],
            delta=work["delta"],
        )
    except (KeyError, TypeError, ValueError, BadInput):
        raise Declined("the work cannot be accounted for") from None
