"""The noise that hides an update: Gaussian, from the operating system's randomness, on a grid.

A simulated Gaussian in floating point, added to a floating-point update, leaks: which doubles can
come out depends on what went in. Here update and noise are both rounded to multiples of ``GRID``
and added as integers. So the output is the ideal Gaussian mechanism on the rounded update, then
rounded: it costs what the ideal one costs, with a sensitivity larger by ``rounding_reach``.

Random bits come from a cipher (ChaCha20): under a key that the system draws anew for every call, so
that a forked worker cannot repeat its parent, or under a secret key of one's own (``KeyedNoise``).
NumPy's generators are predictable from their output and serve only ``SimulatedNoise``.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput

FloatArray = NDArray[np.float64]
Words = NDArray[np.uint64]

GRID = 2.0**-24
LARGEST = 2.0**20
"""Largest sigma and largest coordinate of an update: beyond, sums on the grid could be inexact."""

KEY_BYTES = 32

_CHUNK = 8192  # values worked on at a time, to stay in the processor's cache
_SIGN = np.uint64(2**63)
_MAGNITUDE = ~_SIGN
_FEW = 2.0**53


class NoiseSource(ABC):
    """Where standard Gaussians come from; ``private`` if nobody can compute the noise again."""

    private: bool
    name: str

    @abstractmethod
    def bound(self, context: bytes) -> NoiseSource:
        """The source for releases in this context, such as from this global model: never reused."""

    @abstractmethod
    def stream(self, *key: int) -> NoiseSource:
        """The source for one purpose, such as an owner and a round; independent of call order."""

    @abstractmethod
    def release_id(self) -> str:
        """Name for what is released with the next noise of this stream: equal for equal bits."""

    @abstractmethod
    def words(self, count: int) -> Callable[[int], Words]:
        """Draws uniform 64-bit words, for the next ``count`` standard Gaussians."""

    def gaussians(self, count: int) -> FloatArray:
        """The next ``count`` standard Gaussians."""
        return _gaussians(count, [self.words(count)]).reshape(-1)


class SecureNoise(NoiseSource):
    """Gaussians from the operating system's randomness, the default. It has no state."""

    private = True
    name = "operating system"

    def bound(self, context: bytes) -> SecureNoise:
        return self  # its noise never serves twice

    def stream(self, *key: int) -> SecureNoise:
        return self

    def release_id(self) -> str:
        return secrets.token_hex(16)

    def words(self, count: int) -> Callable[[int], Words]:
        return _cipher_words(KeyedNoise.new_key())


class KeyedNoise(NoiseSource):
    """Gaussians from a stream cipher (ChaCha20) under a secret key drawn by the system.

    As private as the key is secret, and the same whenever key, context and stream are the same: a
    release that was cut off is made again bit by bit, and counts once. The context must name all
    that the update depends on besides the owner's data.
    """

    private = True
    name = "keyed cipher"

    def __init__(self, key: bytes, context: bytes = b"", purpose: tuple[int, ...] = ()) -> None:
        if len(key) != KEY_BYTES:
            raise BadInput("noise key", f"{len(key)} bytes", f"give {KEY_BYTES} bytes.")
        self._key, self._context, self._purpose = key, context, purpose
        self._drawn = 0
        self._words: Callable[[int], Words] | None = None

    @staticmethod
    def new_key() -> bytes:
        return secrets.token_bytes(KEY_BYTES)

    def bound(self, context: bytes) -> KeyedNoise:
        bound = hashlib.sha256(self._context + context).digest()
        return KeyedNoise(self._key, bound, self._purpose)

    def stream(self, *key: int) -> KeyedNoise:
        return KeyedNoise(self._key, self._context, (*self._purpose, *key))

    def release_id(self) -> str:
        return f"keyed-{self._secret(b'name')[:16].hex()}-{self._drawn}"

    def words(self, count: int) -> Callable[[int], Words]:
        self._words = self._words or _cipher_words(self._secret(b"noise"))
        self._drawn += count
        return self._words

    def _secret(self, use: bytes) -> bytes:
        """A key for this stream alone, from which neither the master key nor another follows."""
        named = b",".join(b"%d" % part for part in self._purpose)
        message = b"noisemarket noise v1\0" + use + b"\0" + named + b"\0" + self._context
        return hmac.digest(self._key, message, "sha256")


class SimulatedNoise(NoiseSource):
    """Gaussians from a fixed seed, for tests: NOT PRIVATE, anyone with the seed can remove them."""

    private = False
    name = "NOT PRIVATE: fixed seed"

    def __init__(self, seed: int, key: tuple[int, ...] = ()) -> None:
        self.seed, self.key = seed, key
        self._drawn = 0

    @cached_property
    def _bits(self) -> np.random.PCG64:
        return np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=self.key))

    def bound(self, context: bytes) -> SimulatedNoise:
        return self  # its seed is not secret

    def stream(self, *key: int) -> SimulatedNoise:
        return SimulatedNoise(self.seed, (*self.key, *key))

    def release_id(self) -> str:
        return f"simulated-{self.seed}-{'.'.join(map(str, self.key))}-{self._drawn}"

    def words(self, count: int) -> Callable[[int], Words]:
        self._drawn += count
        return lambda words: np.asarray(self._bits.random_raw(words))


def add_noise(update: NDArray[Any], sigma: float, source: NoiseSource) -> NDArray[Any]:
    """The update plus N(0, sigma^2) on every coordinate, both on the grid.

    Whatever the update holds, noise goes out: what is beyond ``LARGEST`` is cut to it, which brings
    no two updates farther apart, and a NaN counts as 0. An error would tell of it without noise.
    """
    return add_noises(update.reshape(1, -1), [sigma], [source]).reshape(update.shape)


def add_noises(
    updates: NDArray[Any], sigmas: Sequence[float], sources: Sequence[NoiseSource]
) -> NDArray[Any]:
    """The same for several updates, one in a row: each has a sigma and a source of its own."""
    for sigma in sigmas:
        if not 0.0 <= sigma <= LARGEST:
            raise BadInput("sigma", sigma, f"give a number from 0 to {LARGEST:.0f}.")
    scales = np.array(sigmas)[:, None]
    noisy = np.empty(updates.shape, np.float32 if updates.dtype == np.float32 else np.float64)
    for start in range(0, updates.shape[1], _CHUNK):
        part = slice(start, start + _CHUNK)
        within = np.maximum(updates[:, part], -LARGEST, dtype=np.float64)
        np.minimum(within, LARGEST, out=within)
        within[np.isnan(within)] = 0.0
        steps = _grid_steps(within, 1.0)
        if scales.any():
            count = steps.shape[1]
            drawn = _gaussians(count, [source.words(count) for source in sources])
            steps += _grid_steps(drawn, scales)
        steps += 0.0  # turns -0.0 into 0.0: its sign would tell what was rounded away
        noisy[:, part] = steps * GRID
    return noisy


def round_noise(source: NoiseSource, owner: int, round_number: int) -> NoiseSource:
    """The noise of an owner's release in a round, counted from 1."""
    return source.stream(owner, round_number - 1)


def rounding_reach(dimension: int) -> float:
    """How much farther apart two updates can be after rounding each to the grid: GRID sqrt(d)."""
    return GRID * math.sqrt(dimension)


def _grid_steps(values: FloatArray, scale: float | FloatArray) -> FloatArray:
    """``values * scale`` as whole multiples of the grid: integers, which doubles add exactly."""
    values *= scale / GRID
    return np.rint(values, out=values)


def _cipher_words(key: bytes) -> Callable[[int], Words]:
    """The stream of ChaCha20 under a key that serves for nothing else."""
    cipher, chacha20 = _ciphers()
    encrypt = cipher(chacha20(key, bytes(16)), None).encryptor().update
    return lambda count: np.frombuffer(encrypt(bytes(8 * count)), np.uint64)


@cache
def _ciphers() -> tuple[Any, Any]:
    """Slow to import, and only training needs them."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    return Cipher, ChaCha20


def _gaussians(count: int, sources: Sequence[Callable[[int], Words]]) -> FloatArray:
    """Standard Gaussians by inverting the distribution function, a row from each source.

    A word's top bit is the sign, the others are a probability below one half. No rejection, so the
    time taken tells next to nothing about the values. Where the probability is so small that 63
    bits leave fewer than the 53 a double holds (one value in a thousand), 64 further bits are
    appended: also in the tails every double is within reach, out to 13 standard deviations.
    """
    from scipy.special import ndtri  # slow to import, and only training needs it

    out = np.empty((len(sources), count))
    for start in range(0, count, _CHUNK):
        part = out[:, start : start + _CHUNK]
        word = np.array([words(part.shape[1]) for words in sources])
        part[:] = (word & _MAGNITUDE).view(np.int64)
        few = np.divmod(np.flatnonzero(part < _FEW), part.shape[1])  # quicker than nonzero
        counts = np.bincount(few[0], minlength=len(sources)).tolist()
        more = np.concatenate([words(n) for words, n in zip(sources, counts, strict=True)])
        part[few] += (more + 0.5) * 2.0**-64
        part *= 2.0**-64
        ndtri(part, out=part)
        bits = part.view(np.uint64)
        np.bitwise_xor(bits, word & _SIGN, out=bits)
    return out
