"""Matrix products: MatMul, Gemm, Einsum, Det.

Sources: the ONNX operators of these names; MLX `matmul`, `addmm`, `einsum`. MLX multiplies floats
only, so products of integers are built here from float32 products that are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import mlx.core as mx

from ..dtypes import FLOATS, INTS
from ..node import Node, Value
from ..padding import Axes
from ..registry import op
from ._padding import broadcast, product

MATRIX_TYPES: Final = FLOATS | frozenset({"int32", "int64", "uint32", "uint64"})
EXACT: Final = 1 << 24  # float32 holds every integer up to this magnitude
_SMALL: Final = 1 << 16  # products up to this many terms are simply written out


def is_half(x: mx.array) -> bool:
    """Whether `x` is float16 or bfloat16, which are computed with in float32."""
    return x.dtype in (mx.float16, mx.bfloat16)


def exact_matmul(a: mx.array, b: mx.array, bound: int) -> mx.array:
    """The int32 product of integers held as float32, none of whose terms exceeds `bound`."""
    length = a.shape[-1]
    step = max(EXACT // bound, 1)
    if length <= step:
        return mx.matmul(a, b).astype(mx.int32)
    if b.ndim == 1:
        return mx.squeeze(exact_matmul(a, b[:, None], bound), -1)
    total = mx.array(0, dtype=mx.int32)
    for start in range(0, length, step):
        part = mx.matmul(a[..., start : start + step], b[..., start : start + step, :])
        total = total + part.astype(mx.int32)
    return total


def integer_matmul(a: mx.array, b: mx.array) -> mx.array:
    """The product of integers of any width, wrapping around as machine integers do."""
    _require_inner(a, b)
    if b.ndim == 1:
        return mx.squeeze(integer_matmul(a, b[:, None]), -1)
    if a.ndim == 1:
        return mx.squeeze(integer_matmul(a[None], b), -2)
    if a.size * b.shape[-1] <= _SMALL:
        return mx.sum(a[..., None] * mx.expand_dims(b, -3), axis=-2).astype(a.dtype)
    limbs = range(a.dtype.size)
    left, right = ([((x >> (8 * i)) & 255).astype(mx.float32) for i in limbs] for x in (a, b))
    total = mx.array(0, dtype=a.dtype)
    for i in limbs:
        for j in limbs[: len(limbs) - i]:
            part = exact_matmul(left[i], right[j], 255 * 255).astype(a.dtype)
            total = total + (part << (8 * (i + j)))
    return total


def _require_inner(a: mx.array, b: mx.array) -> None:
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"a product needs rank 1 or more, got shapes {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise ValueError(f"the inner dimensions differ, got shapes {a.shape} and {b.shape}")


def matrix_product(a: mx.array, b: mx.array) -> mx.array:
    """`numpy.matmul` for floats and integers alike."""
    if not mx.issubdtype(a.dtype, mx.floating):
        return integer_matmul(a, b)
    _require_inner(a, b)
    return mx.matmul(a, b)


@op("MatMul", since=(1, 9, 13), types={"a": MATRIX_TYPES}, padding=product)
def matmul(a: mx.array, b: mx.array) -> mx.array:
    return matrix_product(a, b)


def gemm_claim(node: Node) -> Iterator[str]:
    """Integers take whole factors only."""
    factors = (node.attr("alpha", 1.0), node.attr("beta", 1.0))
    if node.dtype("a") in INTS and any(f != int(f) for f in factors):
        yield "alpha or beta is not a whole number and the inputs are integers"


def gemm_product(
    a: mx.array, b: mx.array, c: mx.array | None, alpha: float, beta: float, trans: tuple[int, int]
) -> mx.array:
    """alpha * A' * B' + beta * C, where a prime transposes when the flag is set."""
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"A and B must be matrices, got shapes {a.shape} and {b.shape}")
    a, b = (x.T if flag else x for x, flag in zip((a, b), trans, strict=True))
    _require_inner(a, b)
    if mx.issubdtype(a.dtype, mx.floating):
        if c is None:
            return _scaled(mx.matmul(a, b), alpha)
        return mx.addmm(c, a, b, alpha=alpha, beta=beta)
    product = integer_matmul(a, b) * int(alpha)
    return product if c is None else product + c * int(beta)


def _scaled(x: mx.array, factor: float) -> mx.array:
    return x if factor == 1.0 else x * factor


def _gemm_padding(node: Node, axes: Axes) -> int:
    turned = (bool(node.attr("transA", 0)), bool(node.attr("transB", 0)))
    axis = product(node, axes, transposed=turned)
    # As if C were broadcast together with a matrix that is padded as the product is.
    grid = Value("", "", (None, None))
    broadcast((grid, *node.inputs[2:]), (axis, *axes[2:]), 2)
    return axis


@op("Gemm", since=(7, 9), types={"a": MATRIX_TYPES}, claim=gemm_claim, padding=_gemm_padding)
def gemm_7(
    a: mx.array,
    b: mx.array,
    c: mx.array,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> mx.array:
    return gemm_product(a, b, c, alpha, beta, (transA, transB))


@op("Gemm", since=(11, 13), types={"a": MATRIX_TYPES}, claim=gemm_claim, padding=_gemm_padding)
def gemm(
    a: mx.array,
    b: mx.array,
    c: mx.array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> mx.array:
    return gemm_product(a, b, c, alpha, beta, (transA, transB))


def _split_equation(equation: str, ranks: tuple[int, ...]) -> tuple[list[str], str]:
    """One label a dimension: an ellipsis becomes labels of its own, counted from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"{equation!r} names {len(terms)} inputs, got {len(ranks)}")
    spare = [chr(c) for c in range(0x391, 0x391 + max(ranks, default=0))]
    hidden = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True)]
    if any(n < 0 or (n > 0 and "..." not in t) for t, n in zip(terms, hidden, strict=True)):
        raise ValueError(f"{equation!r} does not fit inputs of ranks {ranks}")
    widest = "".join(spare[: max(hidden, default=0)])
    terms = [
        t.replace("...", widest[len(widest) - n :]) for t, n in zip(terms, hidden, strict=True)
    ]
    if not arrow:
        joined = "".join(terms)
        once = sorted(c for c in set(joined) if joined.count(c) == 1 and c not in widest)
        right = "..." + "".join(once)
    return terms, right.replace("...", widest)


def _diagonal(x: mx.array, labels: str) -> tuple[mx.array, str]:
    """Take the diagonal wherever a label repeats within one input."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ValueError(f"label {label!r} repeats over different sizes, got {x.shape}")
            x = mx.diagonal(x, axis1=first, axis2=second)
            labels = labels[:first] + labels[first + 1 : second] + labels[second + 1 :] + label
    return x, labels


def _aligned(x: mx.array, labels: str, order: str) -> mx.array:
    """Transpose to `order`, with a dimension of 1 for each label that `x` lacks."""
    x = mx.transpose(x, [labels.index(c) for c in order if c in labels])
    return mx.expand_dims(x, [i for i, c in enumerate(order) if c not in labels])


def _contract(x: mx.array, lx: str, y: mx.array, ly: str, keep: str) -> tuple[mx.array, str]:
    """Multiply two inputs and sum out the labels that nothing later asks for."""
    # A size of 1 against n broadcasts, so such a label is summed after the product.
    shared = [c for c in lx if c in ly and c not in keep]
    summed = "".join(c for c in shared if x.shape[lx.index(c)] == y.shape[ly.index(c)])
    if not summed:
        order = "".join(dict.fromkeys(lx + ly))
        return _sum_out(_aligned(x, lx, order) * _aligned(y, ly, order), order, keep)
    batch = "".join(c for c in dict.fromkeys(lx + ly) if c in lx and c in ly and c not in summed)
    rows = "".join(c for c in lx if c not in ly)
    columns = "".join(c for c in ly if c not in lx)
    a, b = _aligned(x, lx, batch + rows + summed), _aligned(y, ly, batch + summed + columns)
    n, r, s = len(batch), len(rows), len(summed)
    product = matrix_product(
        _flatten(_flatten(a, n + r, s), n, r), _flatten(_flatten(b, n + s, len(columns)), n, s)
    )
    sizes = (*product.shape[:n], *a.shape[n : n + r], *b.shape[n + s :])
    return _sum_out(product.reshape(sizes), batch + rows + columns, keep)


def _flatten(x: mx.array, start: int, count: int) -> mx.array:
    """Join `count` dimensions from `start` into one; none of them make a dimension of 1."""
    size = 1
    for dim in x.shape[start : start + count]:
        size *= dim
    return x.reshape((*x.shape[:start], size, *x.shape[start + count :]))


def _sum_out(x: mx.array, labels: str, keep: str) -> tuple[mx.array, str]:
    axes = [i for i, c in enumerate(labels) if c not in keep]
    if axes:
        wide = x.astype(mx.float32) if is_half(x) else x
        x = mx.sum(wide, axis=axes).astype(x.dtype)
    return x, "".join(c for c in labels if c in keep)


@op("Einsum", since=(12, 28), types={"inputs": FLOATS | INTS})
def einsum(*inputs: mx.array, equation: str) -> mx.array:
    terms, out = _split_equation(equation, tuple(x.ndim for x in inputs))
    left = [_diagonal(x, t) for x, t in zip(inputs, terms, strict=True)]
    x, labels = left[0]
    for i, (y, more) in enumerate(left[1:], start=2):
        later = out + "".join(t for _, t in left[i:])
        left_part = _sum_out(x, labels, later + more)
        x, labels = _contract(*left_part, *_sum_out(y, more, later + labels), later)
    x, labels = _sum_out(x, labels, out)
    if sorted(labels) != sorted(out):
        raise ValueError(f"{equation!r} asks for a label that no input has")
    return mx.transpose(x, [labels.index(c) for c in out])


@op("Det", since=(11, 22), types={"x": FLOATS})
def det(x: mx.array) -> mx.array:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"a determinant needs square matrices, got shape {x.shape}")
    if x.size == 0:
        return mx.ones(x.shape[:-2], dtype=x.dtype)
    rest = x.astype(mx.float32) if is_half(x) else x
    result = mx.ones(x.shape[:-2], dtype=rest.dtype)
    for _ in range(x.shape[-1]):
        pivot_row = mx.argmax(mx.abs(rest[..., 0]), axis=-1, keepdims=True)
        pivot = mx.take_along_axis(rest, pivot_row[..., None], axis=-2)
        value = pivot[..., 0, 0]
        # Row 0 takes the pivot's place: a swap, unless the pivot is row 0 already.
        swapped = mx.put_along_axis(rest, pivot_row[..., None], rest[..., :1, :], axis=-2)
        result = result * mx.where(pivot_row[..., 0] == 0, value, -value)
        safe = mx.where(value == 0, 1, value)[..., None, None]
        rest = swapped[..., 1:, 1:] - swapped[..., 1:, :1] / safe * pivot[..., :, 1:]
    return result.astype(x.dtype)
