"""The file of a secret noise key: drawn once, readable by its owner alone."""

from __future__ import annotations

import os
from pathlib import Path

from noisemarket.errors import BadInput, NoisemarketError
from noisemarket.privacy.noise import KEY_BYTES, KeyedNoise


def obtain_noise_key(place: Path) -> bytes:
    """The key in this file; a new one, on disk before it is used, if there is none yet."""
    if place.exists():
        key = place.read_bytes()
        if len(key) != KEY_BYTES:
            raise BadInput("noise key", str(place), "is damaged: the job cannot be resumed.")
        return key
    beside = place.with_suffix(".new")
    try:
        beside.unlink(missing_ok=True)
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(KeyedNoise.new_key())
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(place)
        return place.read_bytes()
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise NoisemarketError(f"{place} cannot be written: {reason}.") from None
