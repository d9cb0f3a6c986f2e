"""Any ``torch.nn.Module`` as a model: arrays go in and come out, tensors stay inside."""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisemarket.errors import MissingExtra

try:
    import torch
    from torch import nn
except ModuleNotFoundError as missing:
    raise MissingExtra("A model of torch", "cnn") from missing

from noisemarket.federated.models.cnn import cnn_settings
from noisemarket.federated.models.flat_model import FlatModel
from noisemarket.federated.models.model import Flat, Labels, Model, ModelMaker, Records


@dataclass(frozen=True, eq=False)
class TorchRecords(Records):
    """Inputs and labels as tensors; images as convolutions run fastest on them."""

    inputs: torch.Tensor
    labels: torch.Tensor

    @classmethod
    def of(cls, inputs: NDArray[np.float32], labels: Labels) -> TorchRecords:
        ready = torch.from_numpy(inputs)
        if ready.dim() == 4:
            ready = ready.contiguous(memory_format=torch.channels_last)
        return cls(ready, torch.from_numpy(labels))

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> TorchRecords:
        chosen = torch.from_numpy(indices)
        return TorchRecords(self.inputs[chosen], self.labels[chosen])


class TorchModel(Model):
    """A module whose training is that of ``FlatModel``, which lays its parameters out anew."""

    def __init__(self, module: nn.Module) -> None:
        self._flat = FlatModel(module)
        self._first: Flat = self._flat.weights.numpy().copy()

    def __len__(self) -> int:
        return len(self._flat)

    def first_weights(self) -> Flat:
        return self._first.copy()

    def layers(self) -> dict[str, slice]:
        return dict(self._flat.layers)

    def records(self, inputs: NDArray[np.float32], labels: Labels) -> TorchRecords:
        return TorchRecords.of(inputs, labels)

    def descend(self, weights: Flat, records: Records, rate: float) -> None:
        own = _own(records)
        self._load(weights)
        self._flat.descend(own.inputs, own.labels, rate)
        weights[:] = self._flat.weights.numpy()

    def clipped_gradient(self, weights: Flat, records: Records, clip: float) -> Flat:
        own = _own(records)
        self._load(weights)
        summed: Flat = self._flat.clipped_gradient(own.inputs, own.labels, clip).numpy()
        return summed

    def shard_updates(
        self, start: Flat, records: Records, shards: int, steps: int, rate: float
    ) -> Iterator[Flat]:
        own = _own(records)
        parts = [
            (own.inputs[first::shards], own.labels[first::shards])
            for first in range(min(shards, len(own)))
        ]
        begin = torch.from_numpy(start.copy())
        for updates in self._flat.shard_updates(begin, parts, steps, rate):
            yield updates.numpy()

    def score(
        self, weights: Flat, inputs: NDArray[np.float32], labels: Labels
    ) -> tuple[int, float]:
        self._load(weights)
        own = TorchRecords.of(inputs, labels)
        return self._flat.score(own.inputs, own.labels)

    def aim(self, weights: Flat, inputs: NDArray[np.float32], scores: NDArray[np.float32]) -> Flat:
        *_, last = self.layers().values()
        aimed = weights.copy()
        if last.stop - last.start == len(scores):  # the biases of the last layer
            self._load(weights)
            with torch.no_grad():
                now = self._flat.module(TorchRecords.of(inputs, np.zeros(1, np.int64)).inputs)
            aimed[last] += scores - now[0].numpy()
        return aimed

    def state(self, weights: Flat) -> dict[str, Any]:
        """The module's state with these weights, until this model is used again."""
        self._load(weights)
        return self._flat.module.state_dict()

    def reseed(self, seed: int) -> None:
        torch.manual_seed(seed)

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _load(self, weights: Flat) -> None:
        self._flat.weights.copy_(torch.from_numpy(weights))


@dataclass(frozen=True)
class TorchMaker(ModelMaker):
    """Makes a ``TorchModel``.

    Args:
        build: a class or function from the top level of a module that makes a ``torch.nn.Module``.
    """

    build: Callable[[], nn.Module]

    def __call__(self, seed: int) -> TorchModel:
        """The module as every worker makes it, also where it has weights that are not trained."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return TorchModel(self.build())

    def module(self, weights: Flat, seed: int) -> nn.Module:
        """A module of its own with these weights, ready to be used."""
        module, trained = self.build(), self(seed)
        module.load_state_dict(trained.state(weights))
        return module.eval()

    def identity(self) -> bytes:
        machine = torch.__version__, torch.backends.cpu.get_cpu_capability()
        return repr(machine).encode() + _pickled(self.build)

    def made_by(self) -> tuple[str, ...]:
        return (f"PyTorch {torch.__version__} for {torch.backends.cpu.get_cpu_capability()}",)

    def settings(self) -> dict[str, Any]:
        return cnn_settings(self.build)


def _own(records: Records) -> TorchRecords:
    assert isinstance(records, TorchRecords)
    return records


def _pickled(value: object) -> bytes:
    """A maker as bytes. Tensors count by their values: pickled the usual way, they differ from run
    to run."""

    def values(tensor: torch.Tensor) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (tensor.detach().numpy().tobytes(),)

    memory = io.BytesIO()
    pickler = pickle.Pickler(memory)
    tensors: dict[type, Any] = {torch.Tensor: values, torch.nn.Parameter: values}
    pickler.dispatch_table = {**copyreg.dispatch_table, **tensors}
    pickler.dump(value)
    return memory.getvalue()
