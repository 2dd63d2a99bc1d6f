"""Slicing and selection by position."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from support.case import K, M, N, case, const, ints, rand, values
from support.ep import Ep
from support.strategies import INT_MAX, INT_MIN, axes, axis, bounds, shapes, steps


def one_hot(indices, depth, values, axis=-1):
    wanted = np.expand_dims(indices % int(np.ravel(depth)[0]), axis)
    places = np.arange(int(np.ravel(depth)[0])).reshape(
        [-1 if i == axis % wanted.ndim else 1 for i in range(wanted.ndim)]
    )
    inside = np.expand_dims(np.abs(indices) < int(np.ravel(depth)[0]), axis)
    return np.where((wanted == places) & inside, values[1], values[0])


CASES = [
    case("Slice", rand(N, 5), opset=9, starts=[1, 0], ends=[9, -1]),
    case("Slice", rand(N, 5), opset=9, starts=[-2], ends=[INT_MAX], axes=[1]),
    case("Slice", rand(N, 5), const([1]), const([3])),
    case("Slice", rand(4, 5), const([-1]), const([-9]), const([1]), const([-2]), id="reversed"),
    case("Slice", rand(0, 5), const([0]), const([9]), id="empty"),
    case(
        "Slice", rand(N, M, K), const([0, 1]), const([INT_MAX, INT_MAX]), const([2, 0]), id="open"
    ),
    case("Slice", rand(6, 5), ints([1, 0], [0, 2]), ints([4, 3], [2, 5]), id="run-time"),
    case(
        "Slice",
        rand(6, 5),
        ints([1], [3]),
        ints([6], [0]),
        ints([0], [-1]),
        ints([2], [-1]),
        id="all-run-time",
    ),
    case(
        "Slice",
        rand(6),
        ints([5], dtype="int32"),
        ints([-7], dtype="int32"),
        const([0], "int32"),
        const([-1], "int32"),
        id="int32",
    ),
    case(
        "Slice",
        values([0, 1, 2]),
        const([-7]),
        const([-9]),
        const([0]),
        const([-1]),
        id="left-of-the-axis",
    ),
    case(
        "Slice",
        values([0, 1, 2]),
        const([1]),
        const([INT_MAX]),
        const([0]),
        const([-1]),
        id="right-of-the-axis",
    ),
    case("Trilu", rand(N, M, K)),
    *(
        case("Trilu", rand(M, K), const(k), upper=u, id=f"k={k}-upper={u}")
        for k in (-1, 2, 9)
        for u in (0, 1)
    ),
    case("Trilu", rand(3, 4), ints(1, -1), id="run-time"),
    case("OneHot", ints([0, 2, -1, 9]), const(4), rand(2), id="last", reference=one_hot),
    case(
        "OneHot", ints([[0, 2], [1, 1]]), ints(3, 5), rand(2), axis=0, id="first", reference=one_hot
    ),
    case(
        "OneHot",
        ints([0, 2], dtype="int32"),
        const([3.0], "float32"),
        rand(2),
        axis=1,
        id="float-depth",
        reference=one_hot,
    ),
    case(
        "Compress",
        rand(N, 4),
        values([True, False, True], [False, False, True], dtype="bool"),
        axis=1,
    ),
    case("Compress", rand(2, 3), values([True, False, True, True], dtype="bool"), id="flat"),
    case("Compress", rand(2, 3), values([False, False], dtype="bool"), axis=0, id="nothing"),
    case("Compress", rand(N, 4), const([True, False, True], "bool"), axis=1, id="constant"),
    case("ReverseSequence", rand(4, 3, K), ints([4, 1, 2], [1, 3, 0])),
    case("ReverseSequence", rand(3, 4), ints([4, 1, 2]), batch_axis=0, time_axis=1),
]
REFUSED = [
    (case("Slice", rand(4), const([0]), const([4]), const([0]), const([0])), "a step is zero"),
]
FAILING = [
    (case("Slice", rand(4), const([0]), const([4]), const([0]), ints([0])), "a slice step is zero"),
    (case("OneHot", ints([0]), ints(-1), rand(2)), "the depth -1 is negative"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


@pytest.mark.parametrize(("c", "text"), FAILING, ids=str)
def test_failing(c, text, ep: Ep) -> None:
    ep.fails(c, text)


@given(data=st.data(), shape=shapes(min_rank=1))
def test_slice(data, shape, ep: Ep) -> None:
    chosen = data.draw(axes(len(shape), min_size=1))
    starts = [data.draw(bounds(shape[a])) for a in chosen]
    ends = [data.draw(bounds(shape[a])) for a in chosen]
    by = [data.draw(steps(shape[a])) for a in chosen]
    # ORT reads an end of INT_MAX with a negative step as "to the left end": see disputes.py.
    assume(not any(e >= 2**31 - 1 and s < 0 for e, s in zip(ends, by, strict=True)))
    given_by = const if data.draw(st.booleans()) else ints
    # The ONNX reference slices as Python does, which differs for a start left of the axis.
    left = any(f < -shape[a] and s < 0 for f, a, s in zip(starts, chosen, by, strict=True))
    c = case(
        "Slice",
        rand(*shape),
        *(given_by(list(v)) for v in (starts, ends, chosen, by)),
        id="left-of-the-axis" if left else "any",
    )
    ep.check_one(c, 13, "int32")


@given(data=st.data(), shape=shapes(min_rank=2))
def test_trilu(data, shape, ep: Ep) -> None:
    k = data.draw(st.one_of(st.integers(-7, 7), st.sampled_from([INT_MAX, INT_MIN + 1])))
    ep.check_one(
        case("Trilu", rand(*shape), ints(k), upper=data.draw(st.integers(0, 1))), 14, "float32"
    )


@given(data=st.data(), shape=shapes(min_rank=1, max_rank=3))
def test_one_hot(data, shape, ep: Ep) -> None:
    at = data.draw(axis(len(shape) + 1))
    indices = rand(*shape, low=-4, high=5, dtype="int64")
    ep.check_one(
        case("OneHot", indices, ints(data.draw(st.integers(1, 4))), rand(2), axis=at), 11, "float32"
    )
