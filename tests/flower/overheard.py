"""All that was said over a grid, and whether a secret is in it, in whatever form."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, Message

from noisemarket.privacy import noise
from noisemarket.privacy.noise import SimulatedNoise, add_noise

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class Overheard:
    """The contents of messages: texts, bytes, numbers, arrays."""

    def __init__(self, messages: Iterable[Message]) -> None:
        contents = [record for one in messages for record in one.content.values()]
        values = [value for record in contents for value in record.values()]
        self.arrays = [value.numpy() for value in values if isinstance(value, Array)]
        self._plain = [value for value in values if not isinstance(value, Array)]

    @cached_property
    def whole(self) -> bytes:
        """Everything, one behind the other."""
        texts = (one if isinstance(one, bytes) else str(one).encode() for one in self._plain)
        return b"\n".join([*texts, *(array.tobytes() for array in self.arrays)])

    @cached_property
    def numbers(self) -> set[float]:
        """Every single number, also those inside of texts."""
        said = {float(one) for one in self._plain if isinstance(one, int | float)}
        for one in self._plain:
            text = one if isinstance(one, bytes) else str(one).encode()
            said |= {float(found) for found in _NUMBER.findall(text)}
        return said

    def says(self, secret: Any) -> bool:
        """Whether a number, or bytes as they are, in hexadecimal or base 64, are in it."""
        if isinstance(secret, float):
            return secret in self.numbers or np.float64(secret).tobytes() in self.whole
        forms = secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")
        return any(form in self.whole for form in forms)


@dataclass
class BareUpdates:
    """Every update of a protection as it was before its noise."""

    updates: list[np.ndarray] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, module: str, patch: pytest.MonkeyPatch) -> BareUpdates:
        """Those of the protection in this module, from now on."""
        made, name = cls(), "add_noises" if module == "per_record" else "add_noise"
        right = getattr(noise, name)

        def seen(updates: np.ndarray, sigmas: Any, sources: Any) -> np.ndarray:
            made.updates.extend(np.atleast_2d(updates).copy())
            made.sigmas.extend(np.atleast_1d(sigmas).tolist())
            return right(updates, sigmas, sources)

        patch.setattr(f"noisemarket.federated.protections.{module}.{name}", seen)
        return made

    def check(self, requests: Iterable[Message], replies: Iterable[Message]) -> None:
        """Each went out under its noise, and nothing that was said is nearly one of them."""
        said = Overheard([*requests, *replies])
        sent = [one.content["arrays"]["weights"] for one in replies if _trained(one)]
        for update, sigma, upload in zip(self.updates, self.sigmas, sent, strict=True):
            if sigma == 0.0:
                continue
            noise = sigma * np.sqrt(update.size)
            assert 0.7 * noise < np.linalg.norm(upload.numpy() - update) < 1.4 * noise
            near = min(0.02 * noise, 0.5 * np.linalg.norm(update))
            rounded = add_noise(update, 0.0, SimulatedNoise(0))
            assert not said.says(update.tobytes())
            assert not said.says(rounded.tobytes())
            for array in said.arrays:
                if array.size == update.size and array.dtype.kind == "f":
                    assert np.linalg.norm(array.reshape(-1) - update) > near


def _trained(reply: Message) -> bool:
    return "weights" in reply.content.get("arrays", {})
