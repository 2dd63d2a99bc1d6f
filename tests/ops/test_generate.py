"""Tensors made from a rule, and those whose size depends on the elements."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from onnx.numpy_helper import from_array

from support.case import M, N, case, const, ints, onnx_code, rand, values
from support.ep import Ep
from support.strategies import axis, shapes

CASES = [
    case("Constant", opset=7, value=from_array(np.arange(6.0).reshape(2, 3))),
    case("Constant", opset=11, value=from_array(np.array(3, np.int32)), id="opset11"),
    case("Constant", value=from_array(np.array([1, 2], np.int8)), id="tensor"),
    case("Constant", value_float=1.5),
    case("Constant", value_floats=[1.5, 2.0]),
    case("Constant", value_int=7),
    case("Constant", value_ints=[7, 8]),
    case("ConstantOfShape", ints([2, 3], [0, 4])),
    *(
        case("ConstantOfShape", const([2, 1]), value=from_array(np.array([3], t)), id=t)
        for t in ("float16", "int64", "bool", "uint8", "float64")
    ),
    case("ConstantOfShape", ints([]), id="scalar"),
    case(
        "Range",
        values(1, 2),
        values(9, 11),
        values(2, 3),
        dtypes=["float32", "float64", "int64", "int32", "int16"],
    ),
    case(
        "Range", values(1.5), values(-2.0), values(-0.5), dtypes=["float32", "float64"], id="down"
    ),
    case("Range", values(3), values(3), values(1), id="empty", dtypes=["float32", "int64"]),
    case("Range", values(0), values(5), values(1), opset=11, id="old", dtypes=["float32", "int64"]),
    case("EyeLike", rand(N, M)),
    case("EyeLike", rand(N, M), k=-1, dtype=onnx_code("int64")),
    case("EyeLike", rand(3, 4), k=2),
    case("NonZero", values([[0, 1, 2], [3, 0, 0]], [[0, 0, 0], [0, 1, 0]])),
    case("NonZero", rand(N, 0), id="empty"),
    case("NonZero", rand(N, M), id="dims"),
    case("Unique", values([2, 1, 1, 3, 2], [5, 5, 5, 1, 9]), outputs=4),
    case("Unique", values([2, 1, 1, 3, 2]), outputs=4, sorted=0),
    case("Unique", values([[1, 0], [1, 0], [2, 3]]), outputs=4, axis=0),
    case(
        "Unique",
        values([[2], [1]]),
        outputs=4,
        axis=1,
        sorted=0,
        id="unsorted-axis",
        dtypes=["float32"],
    ),
    case("Unique", values([[2, 1, 2], [0, 1, 0]]), outputs=(1, 0, 1), axis=-1, id="some"),
]
FAILING = [
    (case("ConstantOfShape", ints([2, -1])), "has a negative dimension"),
    (case("Range", values(1), values(2), values(0)), "the delta is zero"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "text"), FAILING, ids=str)
def test_failing(c, text, ep: Ep) -> None:
    ep.fails(c, text)


@given(
    start=st.integers(-20, 20), limit=st.integers(-20, 20), delta=st.sampled_from([1, 2, 7, -1, -3])
)
def test_range(start, limit, delta, ep: Ep) -> None:
    for dtype in ("int64", "int32"):
        c = case("Range", *(ints(v, dtype=dtype) for v in (start, limit, delta)), id="any")
        ep.check_one(c, 11, dtype)


@given(data=st.data(), shape=shapes(min_rank=1, max_rank=3, least=1))
def test_unique(data, shape, ep: Ep) -> None:
    options = {"axis": data.draw(axis(len(shape)))} if data.draw(st.booleans()) else {}
    keep = data.draw(st.integers(0, 1))
    c = case(
        "Unique",
        rand(*shape, low=0, high=3),
        outputs=4,
        sorted=keep,
        id="unsorted-axis" if options and not keep else "any",
        **options,
    )
    ep.check_one(c, 11, "float32")
