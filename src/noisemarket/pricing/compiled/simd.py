"""Vector operations on table rows, eight lanes at a time, for the compiled loop.

Numba leaves loops that carry a sum unvectorised unless it may reorder them; then the result would
depend on the machine. These few operations are therefore written as LLVM vectors of eight doubles
with the order of ``lanes.py``, and run alike on every processor LLVM knows.

A row is stored in groups of 24 numbers: eight Q-values, eight probabilities, and the sums of those
eight over all visits. ``at`` is the index of a row's first number, ``groups`` its number of groups.
Lanes beyond the last action hold a Q-value of ``LOWEST`` and probability 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from noisemarket.pricing.lanes import LANES

GROUP = 3 * LANES
Q, POLICY, TOTAL = 0, LANES, 2 * LANES
LOWEST = -1e300

_F64, _I64, _I32, _I8 = ir.DoubleType(), ir.IntType(64), ir.IntType(32), ir.IntType(8)
_VEC, _IVEC = ir.VectorType(_F64, LANES), ir.VectorType(_I64, LANES)
_ZERO = ir.Constant(_VEC, [ir.Constant(_F64, 0.0)] * LANES)
_ONE_I64 = ir.Constant(_I64, 1)


def _shuffle(b: Any, vector: Any, lanes: list[int]) -> Any:
    """Lanes of ``vector`` in the given order; lane number ``LANES`` means zero."""
    other = _ZERO if vector.type == _VEC else ir.Constant(vector.type, ir.Undefined)
    return b.shuffle_vector(vector, other, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes))


def _splat(b: Any, scalar: Any, vector: Any) -> Any:
    first = b.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return b.shuffle_vector(
        first,
        ir.Constant(vector, ir.Undefined),
        ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES),
    )


def _address(b: Any, table: Any, at: Any, group: Any, part: int) -> Any:
    index = b.add(at, b.mul(group, ir.Constant(_I64, GROUP)))
    index = b.add(index, ir.Constant(_I64, part))
    return b.bitcast(b.gep(table, [index], inbounds=True), _VEC.as_pointer())


def _load(b: Any, address: Any) -> Any:
    vector = b.load(address)
    vector.align = 8
    return vector


def _store(b: Any, vector: Any, address: Any) -> None:
    b.store(vector, address).align = 8


def _larger(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def _fold(b: Any, vector: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Eight lanes into one number, in halves."""
    for half in (4, 2):
        low = _shuffle(b, vector, list(range(half)))
        vector = join(low, _shuffle(b, vector, list(range(half, 2 * half))))
    first, second = (b.extract_element(vector, ir.Constant(_I32, i)) for i in (0, 1))
    return join(first, second)


def _each_group(
    b: Any, groups: Any, start: list[Any], body: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """A loop over the groups of a row that carries some values along."""
    before = b.block
    head, end = b.append_basic_block("group"), b.append_basic_block("done")
    b.branch(head)
    b.position_at_end(head)
    group = b.phi(_I64)
    carried = [b.phi(value.type) for value in start]
    group.add_incoming(ir.Constant(_I64, 0), before)
    for phi, value in zip(carried, start, strict=True):
        phi.add_incoming(value, before)
    after = body(group, carried)
    following = b.add(group, _ONE_I64)
    group.add_incoming(following, b.block)
    for phi, value in zip(carried, after, strict=True):
        phi.add_incoming(value, b.block)
    b.cbranch(b.icmp_signed("<", following, groups), head, end)
    b.position_at_end(end)
    return after


def _put(b: Any, table: Any, at: Any, part: int, action: Any, value: Any) -> None:
    """Set one number by rewriting its whole group.

    A vector load stalls on a scalar, or on part of a vector, that was just written inside it. The
    fence does nothing but keep LLVM from writing only the part that changed.
    """
    group = b.ashr(action, ir.Constant(_I64, 3))
    where = _address(b, table, at, group, part)
    first = b.mul(group, ir.Constant(_I64, LANES))
    lanes = b.add(
        _splat(b, first, _IVEC), ir.Constant(_IVEC, [ir.Constant(_I64, i) for i in range(LANES)])
    )
    chosen = b.icmp_signed("==", lanes, _splat(b, action, _IVEC))
    changed = b.select(chosen, _splat(b, value, _VEC), _load(b, where))
    fence = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(_VEC, [_VEC]), "llvm.arithmetic.fence.v8f64"
    )
    _store(b, b.call(fence, [changed]), where)


def _setter(part: int) -> Callable[..., Any]:
    def generate(context: Any, b: Any, __: Any, args: Any) -> Any:
        table, at, action, value = args
        _put(b, table, at, part, action, value)
        return context.get_dummy_value()

    return generate


@intrinsic
def pointer(_context: Any, array: Any) -> Any:
    """The address of an array's data: indexing it costs no bounds, sign or reference counting.

    The array must outlive the pointer: pass it in from outside the compiled function.
    """

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return make_array(signature.args[0])(context, b, args[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def pick(_context: Any, table: Any, at: Any, groups: Any, uniform: Any) -> Any:
    """``lanes.draw``: the action that a uniform number picks from a row's policy."""

    def generate(_: Any, b: Any, __: Any, args: Any) -> Any:
        table, at, groups, uniform = args
        limit = _splat(b, uniform, _VEC)

        def body(group: Any, carried: list[Any]) -> list[Any]:
            before, action = carried
            v = _load(b, _address(b, table, at, group, POLICY))
            v = b.fadd(v, _shuffle(b, v, [8, 0, 8, 2, 8, 4, 8, 6]))
            v = b.fadd(v, _shuffle(b, v, [8, 8, 1, 1, 8, 8, 5, 5]))
            v = b.fadd(v, _shuffle(b, v, [8, 8, 8, 8, 3, 3, 3, 3]))
            passed = b.fcmp_ordered("<=", b.fadd(v, before), limit)
            passed = b.zext(b.ctpop(b.bitcast(passed, _I8)), _I64)
            return [b.fadd(before, _shuffle(b, v, [7] * LANES)), b.add(action, passed)]

        return _each_group(b, groups, [_ZERO, ir.Constant(_I64, 0)], body)[1]

    return types.int64(table, types.int64, types.int64, types.float64), generate


@intrinsic
def highest(_context: Any, table: Any, at: Any, groups: Any) -> Any:
    """The highest Q-value of a row."""

    def generate(_: Any, b: Any, __: Any, args: Any) -> Any:
        table, at, groups = args
        start = ir.Constant(_VEC, [ir.Constant(_F64, 2 * LOWEST)] * LANES)

        def body(group: Any, carried: list[Any]) -> list[Any]:
            return [_larger(b, _load(b, _address(b, table, at, group, Q)), carried[0])]

        return _fold(b, _each_group(b, groups, [start], body)[0], lambda x, y: _larger(b, x, y))

    return types.float64(table, types.int64, types.int64), generate


@intrinsic
def first_equal(_context: Any, table: Any, at: Any, groups: Any, wanted: Any) -> Any:
    """The first action whose Q-value is ``wanted``."""

    def generate(_: Any, b: Any, __: Any, args: Any) -> Any:
        table, at, groups, wanted = args
        none = ir.Constant(_I64, 1 << 62)

        def body(group: Any, carried: list[Any]) -> list[Any]:
            q = _load(b, _address(b, table, at, group, Q))
            hits = b.bitcast(b.fcmp_ordered("==", q, _splat(b, wanted, _VEC)), _I8)
            lane = b.cttz(b.zext(hits, _I64), ir.Constant(ir.IntType(1), 0))
            found = b.add(lane, b.mul(group, ir.Constant(_I64, LANES)))
            found = b.select(b.icmp_signed("==", hits, ir.Constant(_I8, 0)), none, found)
            return [b.select(b.icmp_signed("<", found, carried[0]), found, carried[0])]

        return _each_group(b, groups, [none], body)[0]

    return types.int64(table, types.int64, types.int64, types.float64), generate


@intrinsic
def add_and_gain(
    _context: Any, table: Any, at: Any, groups: Any, visits: Any, best_value: Any
) -> Any:
    """Adds the policy to the sum of policies; returns ``visits`` times what the policy gains over
    their average, ``best_value`` being the row's highest Q-value."""

    def generate(_: Any, b: Any, __: Any, args: Any) -> Any:
        table, at, groups, visits, best_value = args
        times, tops = _splat(b, visits, _VEC), _splat(b, best_value, _VEC)

        def body(group: Any, carried: list[Any]) -> list[Any]:
            policy = _load(b, _address(b, table, at, group, POLICY))
            where = _address(b, table, at, group, TOTAL)
            total = b.fadd(_load(b, where), policy)
            _store(b, total, where)
            q = _load(b, _address(b, table, at, group, Q))
            gain = b.fmul(b.fsub(b.fmul(policy, times), total), b.fsub(q, tops))
            return [b.fadd(carried[0], gain)]

        return _fold(b, _each_group(b, groups, [_ZERO], body)[0], b.fadd)

    arguments = (table, types.int64, types.int64, types.float64, types.float64)
    return types.float64(*arguments), generate


@intrinsic
def take_from_all(_context: Any, table: Any, at: Any, groups: Any, amount: Any) -> Any:
    """Takes ``amount`` from each action, at most what it has; returns what they still hold."""

    def generate(_: Any, b: Any, __: Any, args: Any) -> Any:
        table, at, groups, amount = args
        amounts = _splat(b, amount, _VEC)

        def body(group: Any, carried: list[Any]) -> list[Any]:
            where = _address(b, table, at, group, POLICY)
            left = b.fsub(_load(b, where), amounts)
            left = b.select(b.fcmp_ordered(">", left, _ZERO), left, _ZERO)
            _store(b, left, where)
            return [b.fadd(carried[0], left)]

        return _fold(b, _each_group(b, groups, [_ZERO], body)[0], b.fadd)

    return types.float64(table, types.int64, types.int64, types.float64), generate


@intrinsic
def set_value(_context: Any, table: Any, at: Any, action: Any, value: Any) -> Any:
    """Sets the Q-value of an action."""
    return types.void(table, types.int64, types.int64, types.float64), _setter(Q)


@intrinsic
def set_probability(_context: Any, table: Any, at: Any, action: Any, probability: Any) -> Any:
    """Sets the probability of an action."""
    return types.void(table, types.int64, types.int64, types.float64), _setter(POLICY)
