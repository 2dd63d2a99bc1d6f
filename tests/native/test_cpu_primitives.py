"""The CPU kernels: what a captured closure computes against MLX's own primitives, or NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ort_mlx import _native
from support.closures import Function, captured, floats, same

Arrays = list[NDArray[Any]]

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-40, -1e-40, 3e38, -3e38, 1e-30]
# Not a multiple of a block or a vector, and more than one block for each of two threads.
LONG = 300_007


@pytest.fixture(autouse=True)
def on_the_cpu(instruction_set: str) -> Iterator[None]:
    with mx.stream(mx.cpu):
        yield


def wide_range() -> NDArray[np.float32]:
    rng = np.random.default_rng(1)
    exponents = np.exp2(rng.uniform(-40, 7, LONG)) * rng.choice([-1, 1], LONG)
    return np.concatenate([SPECIAL, exponents, np.linspace(-105, 105, 4001)]).astype(np.float32)


EXACT: dict[str, tuple[Function, Function]] = {
    "exp": (mx.exp, np.exp),
    "log": (mx.log, np.log),
    "tanh": (mx.tanh, np.tanh),
    "erf": (mx.erf, np.vectorize(math.erf, otypes=[np.float64])),
    "sigmoid": (mx.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "sqrt": (mx.sqrt, np.sqrt),
    "rsqrt": (mx.rsqrt, lambda x: 1 / np.sqrt(x)),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_function_is_accurate(name: str) -> None:
    f, reference = EXACT[name]
    x = wide_range()
    (y,) = captured(f, [mx.array(x)])
    expected = reference(x.astype(np.float64)).astype(np.float32)
    # Subnormal results may lose their last bits.
    lost = 2e-38 if name == "sigmoid" else 3e-45
    np.testing.assert_allclose(np.array(y), expected, rtol=4e-7, atol=lost)
    zero = (expected == 0) & (x == 0)
    np.testing.assert_array_equal(np.signbit(np.array(y)[zero]), np.signbit(expected[zero]))


UNARY = [mx.negative, mx.abs, mx.square, mx.floor, mx.ceil, mx.round]
BINARY = [
    mx.add, mx.subtract, mx.multiply, mx.divide, mx.maximum, mx.minimum, mx.power,
    mx.equal, mx.not_equal, mx.less, mx.less_equal, mx.greater, mx.greater_equal,
]  # fmt: skip


@pytest.mark.parametrize("f", UNARY, ids=lambda f: f.__name__)
def test_unary(f: Function) -> None:
    same(f, mx.array(wide_range()), rtol=0)


@pytest.mark.parametrize("f", BINARY, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_binary(f: Function) -> None:
    x = np.array([a for a in SPECIAL for _ in SPECIAL] + list(wide_range()[:5000]), np.float32)
    y = np.array(SPECIAL * len(SPECIAL) + list(wide_range()[5000:10000]), np.float32)
    same(f, mx.array(x), mx.array(y))
    x, y = np.roll(np.resize(x, LONG), 7), np.resize(y, LONG)
    same(f, mx.array(x), mx.array(y))


INTEGER = [f for f in BINARY if f not in (mx.divide, mx.power)]


@pytest.mark.parametrize("f", [*INTEGER, mx.negative, mx.abs, mx.square], ids=lambda f: f.__name__)
def test_int32_wraps_around(f: Function) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-(2**31), 2**31, 5000, dtype=np.int32) for _ in range(2))
    x[:1000] = y[:1000]
    inputs = (mx.array(x), mx.array(y)) if f in INTEGER else (mx.array(x),)
    same(f, *inputs)


def test_bools_and_conversions() -> None:
    def f(x: mx.array, n: mx.array, c: mx.array) -> list[mx.array]:
        positive = x > 0
        both = mx.logical_and(positive, c)
        either = mx.logical_or(mx.logical_not(positive), n.astype(mx.bool_))
        return [
            both, either, both == either, both != c, mx.where(either, x, n.astype(mx.float32)),
            both.astype(mx.float32) + c.astype(mx.int32).astype(mx.float32),
            mx.floor(x).astype(mx.int32) + n, x.astype(mx.bool_), mx.where(c, n, -n),
        ]  # fmt: skip

    for shape in [(), (0, 3), (7,), (33, 5), (3, 100, 70)]:
        rng = np.random.default_rng(len(shape))
        n = mx.array(rng.integers(-3, 4, shape).astype(np.int32))
        same(f, floats(shape), n, mx.array(rng.random(shape) < 0.5))


def test_maximum_keeps_nan() -> None:
    x = np.full((3, 70), 1.0, np.float32)
    x[1, 40] = np.nan
    x[2, 69] = np.nan
    for f in (mx.max, mx.min, mx.sum):
        for axis in (0, 1):
            same(lambda a, f=f, axis=axis: f(a, axis=axis), mx.array(x))


Expression = Callable[[list[mx.array]], mx.array]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 17, 64]), max_size=4)))


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, Any]]]:
    """A shape and steps, each making a value from earlier ones."""
    steps: list[tuple[str, Any]] = []
    pick = st.integers(0, 100)
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(
            st.sampled_from(["unary", "binary", "select", "row", "broadcast", "order", "matmul"])
        )
        steps.append((kind, (draw(pick), draw(pick), draw(pick))))
    return draw(shapes()), steps


def interpret(steps: list[tuple[str, Any]], inputs: list[mx.array]) -> list[mx.array]:
    unary = [mx.negative, mx.tanh, mx.sigmoid, mx.square, mx.erf, lambda a: mx.exp(-mx.abs(a))]
    binary = [mx.add, mx.subtract, mx.multiply, mx.maximum, mx.minimum]
    reduce = [mx.mean, mx.max, mx.min]
    made = list(inputs)
    shape = inputs[0].shape
    for kind, (i, j, k) in steps:
        a, b = made[i % len(made)], made[j % len(made)]
        if kind == "unary":
            a = unary[k % len(unary)](a)
        elif kind == "binary":
            a = binary[k % len(binary)](a, b)
        elif kind == "select":
            a = mx.where(a > 0.25, a, b)
        elif kind == "row" and shape and 0 not in shape:
            a = a - reduce[k % 3](a, axis=-1, keepdims=True)
            a = mx.softmax(a, axis=-1) if j % 2 else a
        elif kind == "broadcast" and shape:
            part = a[tuple(slice(0, 1) if (k >> d) & 1 else slice(None) for d in range(a.ndim))]
            a = b * part if 0 not in shape else b
        elif kind == "order" and len(shape) > 1:
            swapped = mx.contiguous(mx.swapaxes(a, k % len(shape), j % len(shape)))
            a = mx.swapaxes(mx.tanh(swapped), k % len(shape), j % len(shape))
        elif kind == "matmul" and len(shape) > 1 and 0 not in shape:
            a = a @ mx.swapaxes(b, -1, -2) @ b * (0.1 / shape[-1])
        made.append(a)
    return made[len(inputs) :]


@given(programs(), st.integers(0, 2**32 - 1), st.booleans())
def test_any_graph(
    program: tuple[tuple[int, ...], list[tuple[str, Any]]], seed: int, only_last: bool
) -> None:
    shape, steps = program
    rng = np.random.default_rng(seed)
    with mx.stream(mx.cpu):
        plain = mx.array(rng.uniform(-2, 2, shape).astype(np.float32))
        turned = mx.array(rng.uniform(-2, 2, shape[::-1]).astype(np.float32)).T
        wide = mx.array(rng.uniform(-2, 2, (*shape, 2)).astype(np.float32))[..., 0]

        def f(*inputs: mx.array) -> list[mx.array]:
            made = interpret(steps, list(inputs))
            return made[-1:] if only_last else made

        same(f, plain, turned, wide, rtol=2e-4, atol=2e-4)


REDUCED = [(5,), (64,), (3, 70), (70, 3), (2, 33, 40), (2, 3, 33, 40), (0, 4), (4, 1, 600)]


@pytest.mark.parametrize("shape", REDUCED, ids=str)
@pytest.mark.parametrize("f", [mx.sum, mx.max, mx.min, mx.mean], ids=lambda f: f.__name__)
def test_reduce_over_any_axes(f: Function, shape: tuple[int, ...]) -> None:
    x = floats(shape)
    orders = [tuple(range(len(shape))), tuple(reversed(range(len(shape))))]
    for order in orders:
        for mask in range(1, 2 ** len(shape)):
            axes = [d for d in range(len(shape)) if (mask >> d) & 1]
            if f in (mx.max, mx.min, mx.mean) and any(shape[order[d]] == 0 for d in axes):
                continue
            same(
                lambda a, order=order, axes=axes: f(mx.transpose(a, order) + 1, axis=axes),
                x, rtol=2e-6, atol=1e-5,
            )  # fmt: skip


def test_sum_of_many() -> None:
    x = np.random.default_rng(0).random(3_000_001).astype(np.float32)
    (total,) = captured(mx.sum, [mx.array(x)])
    np.testing.assert_allclose(total.item(), x.astype(np.float64).sum(), rtol=1e-6)


@pytest.mark.parametrize("length", [1, 3, 16, 31, 32, 100, 768, 5000, 30_000])
def test_softmax_and_norms(length: int) -> None:
    """Against NumPy in double precision: MLX's own sums are less precise."""
    arrays = [floats((2, 9, length)), floats((length,), 1), floats((length,), 2)]
    x, w, b = (np.array(a).astype(np.float64) for a in arrays)

    def f(x: mx.array, w: mx.array, b: mx.array) -> list[mx.array]:
        return [
            mx.softmax(x * 3 - 1, axis=-1),
            mx.softmax(x.swapaxes(0, 2), axis=0, precise=True),
            mx.fast.layer_norm(x, w, b, 1e-5),
            mx.fast.rms_norm(x + 1, w, 1e-5),
        ]

    def softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    centred = x - x.mean(-1, keepdims=True)
    norm = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w + b
    rms = (x + 1) / np.sqrt(((x + 1) ** 2).mean(-1, keepdims=True) + 1e-5) * w
    expected = [softmax(x * 3 - 1), softmax(x).swapaxes(0, 2), norm, rms]
    for made, wanted in zip(captured(f, arrays), expected, strict=True):
        np.testing.assert_allclose(np.array(made), wanted, rtol=4e-6, atol=4e-6)
    np.testing.assert_allclose(np.array(captured(f, arrays)[0]), expected[0], rtol=4e-6)


def test_softmax_of_infinities() -> None:
    inf = math.inf
    x = [[-inf, 1, 2], [-inf, -inf, -inf], [inf, 1, 2], [math.nan, 1, 2], [-1e30, 0, 1e30]]
    same(lambda a: mx.softmax(a, axis=-1), mx.array(x))


DTYPES = [mx.bool_, mx.uint8, mx.float16, mx.int32, mx.float32, mx.int64, mx.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views_and_copies(dtype: mx.Dtype) -> None:
    def f(x: mx.array) -> list[mx.array]:
        turned = mx.transpose(x, (0, 2, 3, 1))
        one = mx.array(1).astype(dtype)
        return [
            turned, mx.contiguous(turned), turned.reshape(2, -1), turned.flatten(),
            x[:, ::2, 1:, :-1], x[:, ::-1, ::-2], x[:, :, 3:3],
            mx.concatenate([turned, turned[:, :, 1:3], x.transpose(0, 2, 3, 1)], axis=2),
            mx.concatenate([x, x[:, 1:2]], axis=1),
            mx.pad(turned, [(0, 1), (2, 0), (0, 3), (1, 1)]),
            mx.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=one),
            *mx.split(turned, [1, 3], axis=1), mx.expand_dims(turned, 1), turned[:, None, 2:3],
            mx.squeeze(turned[:, 0:1], 1), mx.broadcast_to(turned[:, 1:2], (3, 2, 5, 9, 3)),
            mx.unflatten(turned, 3, (3, 1)), turned[1:].reshape(9, 15),
        ]  # fmt: skip

    x = mx.array(np.random.default_rng(0).integers(0, 2, (2, 3, 5, 9))).astype(dtype)
    same(f, x)
    same(f, mx.transpose(mx.contiguous(mx.transpose(x, (3, 1, 0, 2))), (2, 1, 3, 0)))


def test_large_transpose_is_exact() -> None:
    for shape in [(300, 500), (3, 257, 129), (129, 2, 300), (2, 64, 80, 80)]:
        x = floats(shape)
        axes = tuple(range(1, len(shape)))
        same(lambda a, axes=axes: mx.contiguous(mx.transpose(a, (*axes, 0))), x, rtol=0)
        same(lambda a, axes=axes: mx.contiguous(mx.swapaxes(a, -1, -2)), x, rtol=0)


@pytest.mark.parametrize("dtype", [mx.int32, mx.int64, mx.uint32], ids=str)
def test_take_rows(dtype: mx.Dtype) -> None:
    at = mx.array([[3, 0, 6], [-1 if dtype != mx.uint32 else 1, 2, 2]]).astype(dtype)
    for shape in [(7,), (7, 5), (7, 2, 3)]:
        same(lambda x, at: mx.take(x, at, axis=0), floats(shape), at, rtol=0)
    same(lambda x, at: mx.take(x.T, at, axis=0), floats((5, 7)), at, rtol=0)
    same(lambda x, at: mx.take(x, at, axis=1), floats((5, 7)), at, rtol=0)


def test_what_is_not_ours_is_waited_for() -> None:
    """Primitives of MLX run on their stream, between kernels of ours."""

    def f(x: mx.array) -> list[mx.array]:
        y = mx.sort(x + 1, axis=-1) * 2
        z = mx.cumsum(mx.sin(y), axis=0)
        return [z, mx.argmax(z - 1, axis=1), mx.sort(z, axis=0).T, mx.divmod(y, 3)[1] + 1]

    same(f, floats((70, 90)), rtol=1e-5, atol=1e-4)


def test_lazy_inputs_and_nested_traces() -> None:
    x = floats((4, 64))
    inner_place = _native.placeholder(x)
    inner = _native.capture([inner_place], [mx.exp(inner_place) + 1])
    (y,) = inner.replay([x * 2])
    np.testing.assert_allclose(np.array(y), np.exp(2 * np.array(x)) + 1, rtol=1e-6)
    outer_place = _native.placeholder(x)
    outer = _native.capture([outer_place], [inner.replay([outer_place * 2])[0] * 3])
    (z,) = outer.replay([x])
    np.testing.assert_allclose(np.array(z), 3 * np.array(y), rtol=1e-6)


def test_outputs_that_are_inputs_or_constants() -> None:
    same(lambda x: [x, x + 1, x, mx.ones((2,)), x + 1], floats((5,)))


def test_progression_of_growing_rows() -> None:
    """One closure serves rows of any length: sums, softmax and products over what grows."""

    def f(x: mx.array, past: mx.array) -> list[mx.array]:
        keys = mx.concatenate([past, x], axis=1)
        scores = mx.softmax(x @ keys.swapaxes(1, 2) * 0.3, axis=-1)
        scale = mx.exp(keys) * (1 / keys.shape[1])
        return [keys, scores @ keys, scale + 1, mx.sum(scores * scores, axis=-1, keepdims=True)]

    def arguments(step: int) -> list[mx.array]:
        return [floats((2, 1, 8), step), floats((2, 30 + step, 8), step + 100)]

    steps = [0, 1, 2]
    samples = []
    for step in steps:
        places = [_native.placeholder(a) for a in arguments(step)]
        # The constant in f is not a whole number, so leave it out of what grows.
        made = f(*places)
        samples.append(_native.sample(places, [made[0], made[1], made[3]]))
    closure = _native.unite(samples, steps, [[] for _ in steps])
    for step in (0, 1, 5, 40):
        inputs = arguments(step)
        expected = f(*inputs)
        for a, b in zip(closure.replay(inputs, step), [*expected[:2], expected[3]], strict=True):
            np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-5, atol=1e-6)
