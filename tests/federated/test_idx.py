"""idx files: what is right is read to the byte, and whatever is wrong is said in one sentence."""

from __future__ import annotations

import gzip
import hashlib
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisemarket.errors import BadInput
from noisemarket.federated.data_files import MOST_BYTES, read_idx


def idx(shape: tuple[int, ...], values: bytes | None = None, kind: int = 0x08) -> bytes:
    """An idx file of this shape, with rising values where none are given."""
    size = int(np.prod(shape, dtype=object))
    body = bytes(i % 251 for i in range(size)) if values is None else values
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


IMAGES = idx((5, 4, 3))


def written(folder: Path, content: bytes, name: str = "some-idx3-ubyte") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def complaint(path: Path, dimensions: int = 3) -> str:
    """What the user is told: one sentence on one line that ends with the file's name and why."""
    with pytest.raises(BadInput) as problem:
        read_idx(path, dimensions)
    message = str(problem.value)
    assert message.startswith("idx file ")
    assert "\n" not in message
    assert message.endswith((".", "?"))
    return message


@pytest.mark.parametrize("name", ["a-idx3-ubyte", "a-idx3-ubyte.gz"])
@pytest.mark.parametrize("zipped", [False, True])
def test_plain_and_zipped_whatever_the_name(tmp_path: Path, name: str, zipped: bool) -> None:
    content = gzip.compress(IMAGES) if zipped else IMAGES
    values, sha256 = read_idx(written(tmp_path, content, name), 3)
    assert values.dtype == np.uint8
    assert np.array_equal(values, np.arange(60).reshape(5, 4, 3))
    assert sha256 == hashlib.sha256(IMAGES).hexdigest()
    assert not values.flags.writeable


def test_labels_have_one_dimension(tmp_path: Path) -> None:
    path = written(tmp_path, idx((7,)))
    assert read_idx(path, 1)[0].tolist() == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("keep", [0, 1, 2, 3, 4, 11, 15, 16, 17, 75])
def test_truncated_anywhere(tmp_path: Path, keep: int, zipped: bool) -> None:
    content = gzip.compress(IMAGES[:keep]) if zipped else IMAGES[:keep]
    said = complaint(written(tmp_path, content))
    assert ("not an idx file" if keep < 16 else "just the 60 values") in said


@pytest.mark.parametrize("keep", [2, 9, 15, 40, -9, -4, -1])
def test_truncated_in_its_compressed_data(tmp_path: Path, keep: int) -> None:
    assert "compressed data" in complaint(written(tmp_path, gzip.compress(IMAGES)[:keep]))


def test_damaged_compressed_data(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(bytes(IMAGES)))
    content[len(content) // 2] ^= 0xFF
    assert "damaged compressed data" in complaint(written(tmp_path, bytes(content)))
    rubbish = gzip.compress(IMAGES) + b"rubbish"
    assert "damaged compressed data" in complaint(written(tmp_path, rubbish))


@pytest.mark.parametrize("zipped", [False, True])
def test_trailing_bytes(tmp_path: Path, zipped: bool) -> None:
    content = IMAGES + b"!"
    path = written(tmp_path, gzip.compress(content) if zipped else content)
    assert "just the 60 values" in complaint(path)


@pytest.mark.parametrize(
    "content",
    [b"<!DOCTYPE html>", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04 zip", b"\0\0\x07\3" + bytes(99), b"x"],
)
def test_foreign_files(tmp_path: Path, content: bytes) -> None:
    said = complaint(written(tmp_path, content))
    assert "is not an idx file of images as unsigned bytes: it begins with b" in said


def test_other_types_and_other_parts_are_named(tmp_path: Path) -> None:
    assert "of images as unsigned" in complaint(written(tmp_path, idx((2, 2, 2), kind=0x0D)))
    assert "of images as unsigned" in complaint(written(tmp_path, idx((2,))))
    assert "of labels as unsigned" in complaint(written(tmp_path, IMAGES), dimensions=1)


def test_no_values(tmp_path: Path) -> None:
    assert "promises 0 x 28 x 28 bytes" in complaint(written(tmp_path, idx((0, 28, 28))))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("shape", [(2**32 - 1,) * 3, (MOST_BYTES, 1, 1), (1000, 1000, 2000)])
def test_absurd_headers_cost_no_memory(
    tmp_path: Path, shape: tuple[int, ...], zipped: bool
) -> None:
    content = idx(shape, values=b"few")
    path = written(tmp_path, gzip.compress(content) if zipped else content)
    tracemalloc.start()
    try:
        said = complaint(path)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert ("promises" in said) == (int(np.prod(shape, dtype=object)) > MOST_BYTES)


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "is not a regular file" in complaint(tmp_path / "nowhere")
    assert "is not a regular file" in complaint(tmp_path)


def test_a_long_path_keeps_its_end(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    assert "/some-idx3-ubyte is not" in complaint(written(folder, b"x"))


@given(content=st.binary(max_size=64), zipped=st.booleans())
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, zipped: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    for start in (b"", b"\0\0\x08\1", b"\0\0\x08\1\0\0\0"):
        whole = start + content
        path.write_bytes(gzip.compress(whole) if zipped else whole)
        try:
            said, values = "", read_idx(path, 1)[0].tobytes()
        except BadInput as problem:
            said, values = str(problem), b""
        assert "\n" not in said
        assert said or values == whole[8:]
