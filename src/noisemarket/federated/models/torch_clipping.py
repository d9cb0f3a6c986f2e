"""Sums of clipped gradients, one gradient per example, without the price of one.

A layer that multiplies (Linear, Conv2d) has all its examples' gradients in two tensors: what went
in and the gradient of what came out. One forward pass and one backward pass over activations give
both for every layer, and from them norms and clipped sums follow:

- Linear on one vector per example: the gradient is an outer product, its norm a product of norms,
  and the clipped sum one matrix product with rows scaled.
- Conv2d, and Linear on several vectors: gradients are formed by a batched product and scaled. (A
  norm from Gram matrices may cost less, but subtracts large numbers: it can come out too small.)

This is right only where no example can touch another's activations, or clipping bounds nothing. So
nothing is taken on trust: ``_Watch`` sees every operation while the model runs and gives up at the
first that it does not know to keep examples apart. Then, and for parameters elsewhere than in such
layers, ``by_vmap`` computes the same sum by running the model on one example at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from noisemarket.federated.models.model import CLIP_MARGIN, LARGEST_NORM

Slices = dict[str, slice]
"""Where each trained parameter lies in the flat vector; a convolution's as (out, h, w, in)."""

_EACH = {
    functional.relu, torch.relu, torch.Tensor.relu, functional.leaky_relu, functional.elu,
    functional.gelu, functional.silu, functional.softplus, functional.dropout,
    torch.tanh, torch.Tensor.tanh, torch.sigmoid, torch.Tensor.sigmoid,
}  # fmt: skip
_POOLS = {functional.max_pool2d, functional.avg_pool2d, functional.adaptive_avg_pool2d}
_FLATTEN = {torch.flatten, torch.Tensor.flatten}
_RESHAPE = {torch.Tensor.view, torch.Tensor.reshape, torch.reshape}
_SOFTMAX = {functional.log_softmax, functional.softmax}
_PAIRS = {torch.Tensor.add, torch.add, torch.Tensor.sub, torch.sub, torch.Tensor.mul, torch.mul}
_ASK = {
    torch.Tensor.size, torch.Tensor.dim, torch.Tensor.__len__,
    torch.Tensor.shape.__get__, torch.Tensor.ndim.__get__,  # type: ignore[attr-defined]
}  # fmt: skip


class _UnknownOperation(Exception):
    """The model does something that is not known to keep examples apart."""


@dataclass(frozen=True)
class _Call:
    """One use of a layer: names of its trained parameters, what went in and what came out."""

    weight: str | None
    bias: str | None
    seen: torch.Tensor
    out: torch.Tensor
    kernel: tuple[int, int] | None = None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)


class _Watch(TorchFunctionMode):
    """Runs a model's operations as they come, if row i of every result depends on image i alone.

    Tensors are known by identity: the images, and what known operations made of known tensors. One
    from elsewhere (a constant) ends the watch at its first use, and so does one that has since been
    changed in place or been given another way back (by a custom autograd function).
    """

    def __init__(self, module: nn.Module, images: torch.Tensor) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self._images = len(images)
        self._known: dict[int, tuple[torch.Tensor, Any, int]] = {}
        self._remember(images)
        self._parameters = {id(p): (n, p) for n, p in module.named_parameters()}
        self._used: set[str] = set()

    def knows(self, value: object) -> bool:
        """Whether row i of this tensor is known to depend on image i alone."""
        kept, back, version = self._known.get(id(value), (None, None, 0))
        return kept is not None and kept.grad_fn is back and kept._version == version

    def _remember(self, result: torch.Tensor) -> None:
        self._known[id(result)] = result, result.grad_fn, result._version

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if not args or not self.knows(args[0]):
            raise _UnknownOperation
        if func in _ASK:
            return func(*args, **named)
        if func is functional.linear or func is functional.conv2d:
            result = self._layer(func, *args, **named)
        else:
            self._check(func, args, named)
            result = func(*args, **named)
        if result.dim() < 2 or len(result) != self._images:
            raise _UnknownOperation
        self._remember(result)
        return result

    def _check(self, func: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> None:
        seen, others = args[0], [*args[1:], *named.values()]
        tensors = [other for other in others if isinstance(other, torch.Tensor)]
        if func in _PAIRS:
            alike = all(self.knows(other) and other.shape == seen.shape for other in tensors)
            if alike and "out" not in named:
                return
        elif tensors or named.get("inplace"):  # torch passes this one on by name
            raise _UnknownOperation
        elif func in _EACH or func in _RESHAPE:  # reshaped rows stay rows: their number is checked
            return
        elif func in _POOLS:
            if seen.dim() == 4 and not named.get("return_indices"):
                return
        elif func in _FLATTEN:
            start = args[1] if len(args) > 1 else named.get("start_dim", 0)
            if start >= 1:
                return
        elif func in _SOFTMAX:
            dim = args[1] if len(args) > 1 else named.get("dim")
            if dim is not None and dim % seen.dim() >= 1:
                return
        elif func is functional.layer_norm:
            over = args[1] if len(args) > 1 else named["normalized_shape"]
            if len(over) < seen.dim():  # within an example
                return
        raise _UnknownOperation

    def _layer(
        self,
        func: Callable[..., Any],
        seen: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> torch.Tensor:
        names = self._trained(weight), None if bias is None else self._trained(bias)
        fixed = weight.detach(), None if bias is None else bias.detach()
        if func is functional.linear:
            out: torch.Tensor = func(seen, *fixed)
            call = _Call(*names, seen.detach(), out)
        else:
            if seen.dim() != 4 or groups != 1 or isinstance(padding, str):
                raise _UnknownOperation
            steps = [
                (n, n) if isinstance(n, int) else tuple(n) for n in (stride, padding, dilation)
            ]
            out = func(seen, *fixed, *steps)
            call = _Call(*names, seen.detach(), out, (weight.shape[2], weight.shape[3]), *steps)
        if names != (None, None):
            if not out.requires_grad:
                out.requires_grad_()
            self.calls.append(call)
        return out

    def _trained(self, parameter: torch.Tensor) -> str | None:
        """A parameter's name if it is trained; each may be used once."""
        name, known = self._parameters.get(id(parameter), ("", None))
        if known is not parameter or name in self._used:
            raise _UnknownOperation
        if not parameter.requires_grad:
            return None
        self._used.add(name)
        return name


def by_layers(
    module: nn.Module, slices: Slices, images: torch.Tensor, labels: torch.Tensor, clip: float
) -> torch.Tensor | None:
    """The clipped sum, flat, from one pass; None where this model needs ``by_vmap``."""
    watch = _Watch(module, images)
    try:
        with torch.enable_grad(), watch:
            out = module(images)
    except Exception:  # whatever it is: if it is the model's own fault, vmap will say so too
        return None
    if not watch.knows(out) or out.dim() != 2 or not watch.calls:
        return None
    loss = functional.cross_entropy(out, labels, reduction="sum")
    gradients = torch.autograd.grad(loss, [c.out for c in watch.calls], allow_unused=True)
    parts: list[_Part] = []
    for call, gradient in zip(watch.calls, gradients, strict=True):
        if gradient is not None:
            parts += _parts(call, gradient)
    return _clipped_sum(parts, slices, len(images), clip)


def by_vmap(
    module: nn.Module, slices: Slices, images: torch.Tensor, labels: torch.Tensor, clip: float
) -> torch.Tensor:
    """The clipped sum, flat, for any model: every example is a batch of its own."""
    parameters = {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}

    def loss(weights: dict[str, torch.Tensor], image: torch.Tensor, label: torch.Tensor) -> Any:
        out = functional_call(module, weights, (image[None],))
        return functional.cross_entropy(out, label[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    gradients: dict[str, torch.Tensor] = each(parameters, images, labels)
    parts = [_Whole(name, _rows(gradient)) for name, gradient in gradients.items()]
    return _clipped_sum(parts, slices, len(images), clip)


def _clipped_sum(parts: Sequence[_Part], slices: Slices, count: int, clip: float) -> torch.Tensor:
    squares = torch.zeros(count, dtype=torch.float64)
    for part in parts:
        squares += part.squares()
    share, counts = _share(squares, clip)
    summed = torch.zeros(max(part.stop for part in slices.values()))
    for part in parts:
        part.add_up(share, counts, summed[slices[part.name]])
    return summed


def _share(squares: torch.Tensor, clip: float) -> tuple[torch.Tensor, torch.Tensor | None]:
    """By what to scale each example's gradient, and which count at all (None: all of them)."""
    length = squares.sqrt()
    share = (CLIP_MARGIN * clip / length.clamp_min(1e-300)).clamp_max(1.0)
    counts = length < LARGEST_NORM  # not so for a NaN
    if bool(counts.all()):
        return share.float(), None
    return torch.where(counts, share, 0.0).float(), counts


def _squares(rows: torch.Tensor) -> torch.Tensor:
    """Squared norms in double precision: neither overflow nor underflow of single can matter."""
    length: torch.Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return length.square()


def _only(rows: torch.Tensor, counts: torch.Tensor | None) -> torch.Tensor:
    """The rows with zeros for those that do not count: zero times infinity is not zero."""
    return rows if counts is None else torch.where(counts[:, None], rows, 0.0)


@dataclass(frozen=True)
class _Whole:
    """A parameter's gradient of every example, (examples, values).

    ``turned`` above 0: the values are a matrix of that many columns, transposed.
    """

    name: str
    rows: torch.Tensor
    turned: int = 0

    def squares(self) -> torch.Tensor:
        return _squares(self.rows)

    def add_up(self, share: torch.Tensor, counts: torch.Tensor | None, out: torch.Tensor) -> None:
        total = torch.mv(_only(self.rows, counts).t(), share)
        if self.turned:
            total = total.view(-1, self.turned).t().reshape(-1)
        out.copy_(total)


@dataclass(frozen=True)
class _Outer:
    """The gradient of a matrix of every example, as an outer product of two rows."""

    name: str
    left: torch.Tensor
    right: torch.Tensor

    def squares(self) -> torch.Tensor:
        left, right = _squares(self.left), _squares(self.right)
        too_long = torch.maximum(left, right) > LARGEST_NORM**2  # the other loses precision then
        return torch.where(too_long, torch.inf, left * right)

    def add_up(self, share: torch.Tensor, counts: torch.Tensor | None, out: torch.Tensor) -> None:
        scaled = _only(self.left, counts) * share[:, None]
        right = _only(self.right, counts)
        torch.mm(scaled.t(), right, out=out.view(scaled.shape[1], right.shape[1]))


_Part = _Whole | _Outer


def _parts(call: _Call, gradient: torch.Tensor) -> list[_Part]:
    count = len(gradient)
    last = gradient if call.kernel is None else gradient.permute(0, 2, 3, 1)
    rows = last.reshape(count, -1, last.shape[-1])
    parts: list[_Part] = []
    if call.bias is not None:
        parts.append(_Whole(call.bias, rows.sum(1)))
    if call.weight is None:
        return parts
    if call.kernel is not None:
        parts.append(_convolution(call, call.weight, rows, (gradient.shape[2], gradient.shape[3])))
    elif rows.shape[1] == 1:
        parts.append(_Outer(call.weight, rows[:, 0], call.seen.reshape(count, -1)))
    else:
        seen = call.seen.reshape(count, -1, call.seen.shape[-1])
        parts.append(_Whole(call.weight, torch.bmm(rows.transpose(1, 2), seen).flatten(1)))
    return parts


def _convolution(call: _Call, name: str, rows: torch.Tensor, size: tuple[int, int]) -> _Whole:
    """Each example's weight gradient: its patches times the gradients at their positions.

    Patches are copied in the order in which the longer runs of memory stay whole.
    """
    assert call.kernel is not None
    seen = functional.pad(call.seen, (call.padding[1],) * 2 + (call.padding[0],) * 2)
    (high, wide), channels = call.kernel, seen.shape[1]
    count, positions = len(rows), size[0] * size[1]
    values = high * wide * channels
    (down, right), (apart, beside) = call.stride, call.dilation
    if wide * channels < size[1]:
        seen = seen.contiguous()
        b, c, h, w = seen.stride()
        planes = seen.as_strided(
            (count, high, wide, channels, *size),
            (b, h * apart, w * beside, c, h * down, w * right),
        )
        result = torch.bmm(planes.reshape(count, values, positions), rows)
        return _Whole(name, result.flatten(1), turned=rows.shape[2])
    seen = seen.permute(0, 2, 3, 1).contiguous()
    b, h, w, c = seen.stride()
    patches = seen.as_strided(
        (count, *size, high, wide, channels),
        (b, h * down, w * right, h * apart, w * beside, c),
    )
    result = torch.bmm(rows.transpose(1, 2), patches.reshape(count, positions, values))
    return _Whole(name, result.flatten(1))


def _rows(gradient: torch.Tensor) -> torch.Tensor:
    """Gradients of one parameter as rows, a convolution's laid out as in the flat vector."""
    if gradient.dim() == 5:
        gradient = gradient.permute(0, 1, 3, 4, 2)
    return gradient.flatten(1)
