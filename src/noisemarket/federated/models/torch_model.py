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

from noisemarket.errors import BadInput, MissingExtra

try:
    import torch
    from torch import nn
    from torch.func import functional_call, grad, vmap
    from torch.nn import functional
except ModuleNotFoundError as missing:
    raise MissingExtra("A model of torch", "cnn") from missing

from noisemarket.federated.models.cnn import cnn_settings
from noisemarket.federated.models.model import (
    AT_ONCE,
    CLIP_MARGIN,
    LARGEST_NORM,
    Flat,
    Labels,
    Model,
    ModelMaker,
    Records,
    shard_stacks,
)


@dataclass(frozen=True, eq=False)
class TorchRecords(Records):
    """Inputs and labels as tensors; images lie channels-last, as convolutions run fastest."""

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
    """A module that is called with views of one flat vector as its parameters.

    Weights of convolutions lie channels-last, which halves the time of small convolutions on a CPU.
    """

    def __init__(self, module: nn.Module) -> None:
        floating = [name for name, buffer in module.named_buffers() if buffer.is_floating_point()]
        if floating:
            raise BadInput(
                "model", floating[0], "running statistics leak outside the account: use GroupNorm."
            )
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._shapes = {name: p.shape for name, p in trained.items()}
        self._sizes = [p.numel() for p in trained.values()]
        if not sum(self._sizes):
            raise BadInput("model", type(module).__name__, "give a model with parameters.")
        self.module = module
        self._first: Flat = torch.cat([_flattened(p.data) for p in trained.values()]).numpy()
        self._batches_shards = True  # until an attempt fails; it depends on the module only
        module.train()

    def __len__(self) -> int:
        return len(self._first)

    def first_weights(self) -> Flat:
        return self._first.copy()

    def layers(self) -> dict[str, slice]:
        ends = np.cumsum(self._sizes).tolist()
        places = zip(self._shapes, self._sizes, ends, strict=True)
        return {name: slice(end - size, end) for name, size, end in places}

    def records(self, inputs: NDArray[np.float32], labels: Labels) -> TorchRecords:
        return TorchRecords.of(inputs, labels)

    def descend(self, weights: Flat, records: Records, rate: float) -> None:
        own = _own(records)
        self._descend(torch.from_numpy(weights), own.inputs, own.labels, rate)

    def clipped_gradient(self, weights: Flat, records: Records, clip: float) -> Flat:
        """Each example is a batch of its own, so that none can touch another's gradient."""
        own, start = _own(records), torch.from_numpy(weights.copy())
        each = vmap(grad(self._loss), in_dims=(None, 0, 0), randomness="different")
        summed = torch.zeros(len(self))
        most = max(1, AT_ONCE // len(self))
        for at in range(0, len(own), most):
            part = slice(at, at + most)
            rows = each(start, own.inputs[part].unsqueeze(1), own.labels[part].unsqueeze(1))
            length = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
            share = (CLIP_MARGIN * clip / length.clamp_min(1e-300)).clamp_max(1.0).float()
            good = length < LARGEST_NORM  # not so for a NaN
            summed += torch.mv(rows[good].t(), share[good])
        flat: Flat = summed.numpy()
        return flat

    def shard_updates(
        self, start: Flat, records: Records, shards: int, steps: int, rate: float
    ) -> Iterator[Flat]:
        """A step on nine images costs hardly less than one on sixty-four: most of it is the price
        of calling the framework. So shards of one size are trained as one batch, as one more
        dimension of every operation, where the module allows for it."""
        own, begin = _own(records), torch.from_numpy(start.copy())
        if self._batches_shards:
            worked = False
            try:
                for stack in shard_stacks(len(own), shards, max(1, AT_ONCE // len(self))):
                    yield self._batched_updates(begin, own.take(stack), steps, rate).numpy()
                    worked = True
                return
            except (RuntimeError, NotImplementedError):
                if worked:  # a module that can do it once can do it always
                    raise
                self._batches_shards = False
        for first in range(min(shards, len(own))):
            here = begin.clone()
            for _ in range(steps):
                self._descend(here, own.inputs[first::shards], own.labels[first::shards], rate)
            yield (here - begin)[None].numpy()

    @torch.no_grad()
    def score(
        self, weights: Flat, inputs: NDArray[np.float32], labels: Labels
    ) -> tuple[int, float]:
        own = TorchRecords.of(inputs, labels)
        self.module.eval()
        out = self._call(torch.from_numpy(weights), own.inputs)
        self.module.train()
        right = int((out.argmax(1) == own.labels).sum())
        return right, float(functional.cross_entropy(out, own.labels, reduction="sum"))

    def aim(self, weights: Flat, inputs: NDArray[np.float32], scores: NDArray[np.float32]) -> Flat:
        *_, last = self.layers().values()
        aimed = weights.copy()
        if last.stop - last.start == len(scores):  # the biases of the last layer
            one = TorchRecords.of(inputs, np.zeros(1, np.int64))
            with torch.no_grad():
                now = self._call(torch.from_numpy(weights), one.inputs)
            aimed[last] += scores - now[0].numpy()
        return aimed

    def state(self, weights: Flat) -> dict[str, Any]:
        """The module's state with these weights."""
        return {**self.module.state_dict(), **self._views(torch.from_numpy(weights))}

    def reseed(self, seed: np.random.SeedSequence) -> None:
        torch.manual_seed(int(seed.generate_state(1)[0]))

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _descend(
        self, weights: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, rate: float
    ) -> None:
        """A step of SGD on weights, in place."""
        start = weights.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self._loss(start, inputs, labels), start)
        weights.add_(gradient, alpha=-rate)

    def _batched_updates(
        self, start: torch.Tensor, stack: TorchRecords, steps: int, rate: float
    ) -> torch.Tensor:
        moved = torch.zeros(len(stack), len(self))
        for step in range(steps):
            shared = step == 0  # all begin with the same weights
            each = vmap(
                grad(self._loss), in_dims=(None if shared else 0, 0, 0), randomness="different"
            )
            weights = start if shared else start + moved
            moved.sub_(each(weights, stack.inputs, stack.labels), alpha=rate)
        return moved

    def _loss(
        self, weights: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        return functional.cross_entropy(self._call(weights, inputs), labels)

    def _call(self, weights: torch.Tensor, inputs: torch.Tensor) -> Any:
        return functional_call(self.module, self._views(weights), (inputs,))

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = zip(self._shapes.items(), flat.split_with_sizes(self._sizes), strict=True)
        return {name: _shaped(part, shape) for (name, shape), part in parts}


def _shaped(flat: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """A view of that shape; weights of a convolution lie as (out, height, width, in)."""
    if len(shape) != 4:
        return flat.view(shape)
    out, into, height, width = shape
    return flat.view(out, height, width, into).permute(0, 3, 1, 2)


def _flattened(parameter: torch.Tensor) -> torch.Tensor:
    """Inverse of ``_shaped``."""
    return (parameter.permute(0, 2, 3, 1) if parameter.dim() == 4 else parameter).reshape(-1)


@dataclass(frozen=True)
class TorchMaker(ModelMaker):
    """Makes a ``TorchModel`` from a top-level class or function that makes a ``nn.Module``."""

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

    def size(self) -> int:
        with torch.device("meta"):
            return sum(one.numel() for one in self.build().parameters())

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
