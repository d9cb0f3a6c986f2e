"""Reading idx files, the format of MNIST and of its successors.

An idx file is a header and nothing but values: two zero bytes, a code of the values' type, the
number of dimensions, each dimension as a big-endian 32-bit number, then the values, last dimension
fastest. Files come from anywhere, so nothing in one is believed before it is checked: memory grows
with the bytes that are really there, never with what a header promises.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import BadInput

MOST_BYTES = 1 << 31
"""The most values that a header may promise: 45 times MNIST's training images."""

_TYPES = {
    0x08: "unsigned bytes",
    0x09: "signed bytes",
    0x0B: "16-bit integers",
    0x0C: "32-bit integers",
    0x0D: "32-bit floats",
    0x0E: "64-bit floats",
}
_BYTES = 0x08
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


def read_idx(path: Path, dimensions: int) -> tuple[NDArray[np.uint8], str]:
    """The unsigned bytes in an idx file of this many dimensions, plain or gzip-compressed.

    They are read-only; beside them stands the SHA-256 of the file once unzipped. Compression is
    recognised by content, not by name: browsers unzip files and leave the ``.gz``.
    """
    if not path.is_file():
        reason = "is not a regular file." if path.exists() else "does not exist."
        raise _bad(path, reason)
    try:
        with path.open("rb") as file:
            zipped = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if zipped else file
            return _parse(path, stream, dimensions)
    except EOFError:
        raise _bad(path, "ends in the middle of its compressed data: copy it again.") from None
    except (gzip.BadGzipFile, zlib.error):
        raise _bad(path, "has damaged compressed data: copy it again.") from None
    except OSError as problem:
        raise _bad(path, f"cannot be read ({problem.strerror or problem}).") from None


def _parse(path: Path, stream: BinaryIO, dimensions: int) -> tuple[NDArray[np.uint8], str]:
    header = _read(stream, 4)
    if header[:2] != b"\0\0"[: len(header)] or (len(header) > 2 and header[2] not in _TYPES):
        raise _bad(path, f"is not an idx file: it begins with {bytes(header)!r}.")
    if len(header) < 4:
        raise _bad(path, "ends inside its header: copy it again.")
    if header[2] != _BYTES:
        raise _bad(path, f"holds {_TYPES[header[2]]}: images and labels are unsigned bytes.")
    if header[3] != dimensions:
        what = "images" if dimensions > 1 else "labels"
        found = "1 dimension" if header[3] == 1 else f"{header[3]} dimensions"
        raise _bad(path, f"has {found} where {what} have {dimensions}: is it another part?")
    lengths = _read(stream, 4 * dimensions)
    if len(lengths) < 4 * dimensions:
        raise _bad(path, "ends inside its header: copy it again.")
    shape = struct.unpack(f">{dimensions}I", lengths)
    size = math.prod(shape)
    if size == 0:
        raise _bad(path, f"is empty: its header says {_by(shape)}.")
    if size > MOST_BYTES:
        raise _bad(path, f"promises {_by(shape)} bytes, more than {MOST_BYTES:,}: is it damaged?")

    values = _read(stream, size)
    if len(values) < size:
        raise _bad(path, f"ends after {len(values):,} of {size:,} values: copy it again.")
    if stream.read(1):
        raise _bad(path, f"goes on after the {size:,} values of its header: copy it again.")
    digest = hashlib.sha256(header + lengths)
    digest.update(values)
    array = np.frombuffer(values, dtype=np.uint8).reshape(shape)
    array.setflags(write=False)
    return array, digest.hexdigest()


def _read(stream: BinaryIO, size: int) -> bytearray:
    """Up to ``size`` bytes, in pieces, so that memory follows what the file really holds."""
    content = bytearray()
    while len(content) < size and (piece := stream.read(min(_CHUNK, size - len(content)))):
        content += piece
    return content


def _bad(path: Path, remedy: str) -> BadInput:
    shown = str(path)  # the end of a path says more than its beginning
    return BadInput("idx file", shown if len(shown) <= 80 else "..." + shown[-77:], remedy)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{length:,}" for length in shape)
