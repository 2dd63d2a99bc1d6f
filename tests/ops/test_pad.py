"""Padding and centred cropping."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from support.case import M, N, case, const, ints, omitted, rand, values
from support.ep import Ep
from support.strategies import axes, shapes

MODES = ("constant", "reflect", "edge")

CASES = [
    *(case("Pad", rand(N, 4), opset=7, pads=[0, 2, 0, 1], mode=m) for m in MODES),
    case("Pad", rand(N, 4), opset=7, pads=[1, -1, 0, 1], value=2.5),
    *(case("Pad", rand(N, 4), const([0, 2, 0, 1]), opset=11, mode=m) for m in MODES),
    *(
        case("Pad", rand(N, 4, M), const([1, 2]), omitted(), const([-2]), mode=m, id=m)
        for m in (*MODES, "wrap")
    ),
    case("Pad", rand(N, M), const([1, 0, 0, 2]), const(3.0), id="value"),
    case("Pad", rand(N, 4), ints([0, 1, 2, 0], [0, 3, 0, 1]), values(3.0), id="run-time"),
    case("Pad", rand(2, 0), const([1, 1, 0, 1]), id="empty"),
    case("Pad", rand(1, 2), const([0, 5, 0, 4]), mode="edge", id="far"),
    case("CenterCropPad", rand(7, 4), ints([4, 7], [9, 2])),
    case("CenterCropPad", rand(N, 7, 4), const([4, 6]), axes=[-2, 2]),
]
FAILING = [
    (case("Pad", rand(2, 3), ints([1, 1])), "2 pads do not fit 2 axes"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "text"), FAILING, ids=str)
def test_failing(c, text, ep: Ep) -> None:
    ep.fails(c, text)


@given(data=st.data(), shape=shapes(min_rank=1, least=1), mode=st.sampled_from([*MODES, "wrap"]))
def test_pad(data, shape, mode, ep: Ep) -> None:
    chosen = data.draw(axes(len(shape), min_size=1))
    limits = [shape[a] - 1 if mode == "reflect" else 3 for a in chosen]
    pads = [data.draw(st.integers(0, n)) for n in limits * 2]
    c = case("Pad", rand(*shape), ints(pads), omitted(), ints(chosen), mode=mode, id="any")
    ep.check_one(c, 19, "float32")


@given(data=st.data(), shape=shapes(min_rank=1, least=1))
def test_constant_pad_and_crop(data, shape, ep: Ep) -> None:
    begins = [data.draw(st.integers(-(n // 2), 3)) for n in shape]
    ends = [data.draw(st.integers(-(n // 2), 3)) for n in shape]
    ep.check_one(case("Pad", rand(*shape), ints(begins + ends), values(7), id="any"), 13, "int32")


@given(data=st.data(), shape=shapes(min_rank=1, least=1))
def test_center_crop_pad(data, shape, ep: Ep) -> None:
    target = [data.draw(st.integers(1, 8)) for _ in shape]
    ep.check_one(case("CenterCropPad", rand(*shape), ints(target), id="any"), 18, "float32")
