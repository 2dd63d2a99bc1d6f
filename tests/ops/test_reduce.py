"""Reductions, the arg extremes, running sums and TopK."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from support.case import K, M, N, case, const, ints, omitted, rand, values
from support.ep import Ep
from support.strategies import axes, axis, shapes

NAMES = ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
OLD = {"Sum": 11}


def positive(name: str, *shape):
    return rand(*shape, low=1, high=3) if name in ("LogSum", "Prod") else rand(*shape)


CASES = [
    *(case(f"Reduce{n}", positive(n, N, M, K), opset=OLD.get(n, 13), axes=[1, -1]) for n in NAMES),
    *(case(f"Reduce{n}", positive(n, N, M, K), opset=OLD.get(n, 13), keepdims=0) for n in NAMES),
    *(case(f"Reduce{n}", positive(n, N, M, K), const([1, -1])) for n in NAMES),
    *(case(f"Reduce{n}", positive(n, N, M, K), const([-2]), keepdims=0) for n in NAMES),
    *(case(f"Reduce{n}", positive(n, 2, 3, 2), ints([0], [2]), id="run-time") for n in NAMES),
    *(case(f"Reduce{n}", positive(n, N, M), keepdims=0, id="all") for n in NAMES),
    *(case(f"Reduce{n}", positive(n, N, M), noop_with_empty_axes=1) for n in NAMES),
    *(
        case(f"Reduce{n}", rand(N, 0), const([1]), id="empty")
        for n in ("Sum", "Prod", "Max", "Min", "L1")
    ),
    *(case(f"Reduce{n}", values([1.0, np.nan, 3.0]), id="nan") for n in ("Max", "Min", "Sum")),
    *(
        case(name, rand(N, M, K), opset=11, axis=a, keepdims=k)
        for name in ("ArgMax", "ArgMin")
        for a, k in ((0, 1), (-1, 0))
    ),
    *(
        case(
            name,
            values([[1, 3, 3, 0], [2, 0, 2, 0]], [[4, 4, 4, 4], [0, 1, 0, 1]]),
            axis=1,
            select_last_index=s,
        )
        for name in ("ArgMax", "ArgMin")
        for s in (0, 1)
    ),
    case("ArgMax", rand(N, M, K), axis=-2, keepdims=0, id="dims"),
    case("ArgMin", rand(N, M, K), axis=-2, keepdims=0, id="dims"),
    *(
        case(name, rand(N, M, low=1, high=3), const(1, "int32"), exclusive=e, reverse=r)
        for name in ("CumSum", "CumProd")
        for e in (0, 1)
        for r in (0, 1)
    ),
    case("CumSum", rand(3, 4), ints(0, 1), id="run-time"),
    case("TopK", rand(N, 6), opset=9, outputs=2, k=3),
    case("TopK", rand(N, 6), const([2]), opset=10, outputs=2, axis=0),
    *(
        case(
            "TopK",
            rand(N, 6, M),
            const([3]),
            outputs=2,
            axis=1,
            largest=g,
            dtypes=["float32", "float64", "float16"],
        )
        for g in (0, 1)
    ),
    case("TopK", values([3, 1, 3, 2, 3], [1, 1, 1, 1, 1]), ints([4], [2]), outputs=2, id="ties"),
    case("TopK", rand(3, 5), ints([0], [5]), outputs=2, id="none"),
]
REFUSED = [
    (case("ArgMax", rand(2, 3), axis=2), "the axis is out of range"),
    (case("TopK", rand(2, 3), const([1]), outputs=2, axis=2), "the axis is out of range"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


@given(data=st.data(), shape=shapes(least=1), name=st.sampled_from(["Sum", "Max", "Mean", "L2"]))
def test_reduce(data, shape, name, ep: Ep) -> None:
    chosen = data.draw(axes(len(shape)))
    options = {
        "keepdims": data.draw(st.integers(0, 1)),
        "noop_with_empty_axes": data.draw(st.integers(0, 1)),
    }
    given_axes = (
        (const(list(chosen)) if data.draw(st.booleans()) else ints(list(chosen)))
        if chosen
        else omitted()
    )
    c = case(f"Reduce{name}", rand(*shape), given_axes, id="any", **options)
    ep.check_one(c, c.version, "float32")


@given(
    data=st.data(), shape=shapes(min_rank=1, least=1), name=st.sampled_from(["ArgMax", "ArgMin"])
)
def test_arg_extreme(data, shape, name, ep: Ep) -> None:
    options = {"axis": data.draw(axis(len(shape))), "keepdims": data.draw(st.integers(0, 1))}
    last = data.draw(st.integers(0, 1))
    c = case(name, rand(*shape, low=0, high=3), select_last_index=last, id="any", **options)
    ep.check_one(c, 13, "int32")


@given(data=st.data(), shape=shapes(min_rank=1, least=1), largest=st.integers(0, 1))
def test_top_k(data, shape, largest, ep: Ep) -> None:
    at = data.draw(axis(len(shape)))
    k = ints([data.draw(st.integers(0, shape[at]))])
    c = case("TopK", rand(*shape, low=0, high=4), k, outputs=2, axis=at, largest=largest, id="any")
    ep.check_one(c, 11, "int64")
