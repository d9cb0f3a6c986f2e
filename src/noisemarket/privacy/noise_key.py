"""The file of a secret noise key: drawn once, readable by its owner alone."""

from __future__ import annotations

from pathlib import Path

from noisemarket.errors import BadInput
from noisemarket.files import write_atomic
from noisemarket.privacy.noise import KEY_BYTES, KeyedNoise


def obtain_noise_key(path: Path) -> bytes:
    """The key in this file; a new one, on disk before it is used, if there is none yet.

    Raises:
        BadInput: the file is damaged.
        NoisemarketError: a new key cannot be written.
    """
    if not path.exists():
        write_atomic(path, KeyedNoise.new_key(), private=True)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise BadInput("noise key", str(path), "is damaged: the job cannot be resumed.")
    return key
