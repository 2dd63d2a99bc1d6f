"""8-bit quantization of random shapes: per tensor, along any axis, and dynamic."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from support.case import case, rand
from support.ep import Ep
from support.strategies import SIZES, axis, broadcastable, shapes

BYTES = st.sampled_from(["int8", "uint8"])
WHOLE = st.integers(1, 5)  # for a sum over nothing, ORT leaves its output as it was


def parameters(data, shape):
    """The shape of scale and zero point, and the axis that they are for."""
    along = data.draw(axis(len(shape))) if shape else 0
    whole = not shape or data.draw(st.booleans())
    return (() if whole else (shape[along],)), ({} if whole else {"axis": along})


@given(data=st.data(), shape=shapes(), t=BYTES)
def test_quantize(data, shape, t, ep: Ep) -> None:
    size, options = parameters(data, shape)
    scale, zero = rand(*size, low=0.02, high=0.3), rand(*size, low=0, high=9, dtype=t)
    made = case("QuantizeLinear", rand(*shape), scale, zero, id="any", **options)
    ep.check_one(made, 13, "float32")


@given(data=st.data(), shape=shapes(), t=BYTES)
def test_dequantize(data, shape, t, ep: Ep) -> None:
    size, options = parameters(data, shape)
    scale = rand(*size, low=0.02, high=0.3, dtype="float32")
    zero = rand(*size, low=0, high=9)
    made = case("DequantizeLinear", rand(*shape, low=0, high=99), scale, zero, id="any", **options)
    ep.check_one(made, 13, t)


@given(shape=shapes(least=1))
def test_dynamic_quantize(shape, ep: Ep) -> None:
    ep.check_one(case("DynamicQuantizeLinear", rand(*shape), outputs=3, id="any"), 11, "float32")


@given(batches=broadcastable(2, max_rank=2), rows=SIZES, inner=WHOLE, columns=SIZES, t=BYTES)
def test_matmul_integer(batches, rows, inner, columns, t, ep: Ep) -> None:
    a = rand(*batches[0], rows, inner, low=0, high=99, dtype="uint8")
    b = rand(*batches[1], inner, columns, low=0, high=99, dtype=t)
    zeros = rand(low=0, high=9, dtype="uint8"), rand(low=0, high=9, dtype=t)
    ep.check_one(case("MatMulInteger", a, b, *zeros, id="any"), 10, "float32")
