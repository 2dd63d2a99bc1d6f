"""Operators that ORT's quantizers write: QLinear..., dynamic quantization, and quantized LSTM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.contrib.build import Array, Const, ContribCase, Random, case

UINT8 = (2,)


def cases() -> Iterator[ContribCase]:
    """All of them."""
    yield from linear()
    yield from dynamic()
    yield from lstms()
    yield from casts()


def _scale(value: float, dtype: Any = np.float32) -> Const:
    return Const(np.array(value, dtype))


def _zero(value: int, dtype: Any = np.uint8) -> Const:
    return Const(np.array(value, dtype))


def linear() -> Iterator[ContribCase]:
    """Quantized in and out, with scales and zero points given."""
    r = Random("linear")
    a, b = r.bytes(2, 8, 5), r.bytes(2, 8, 5)
    left, right = (_scale(0.02), _zero(120)), (_scale(0.03), _zero(130))
    result = (_scale(0.05), _zero(125))
    for op in ("QLinearAdd", "QLinearMul"):
        yield case("", op, a, *left, b, *right, *result, types=UINT8)
    x = (a, _scale(0.03), _zero(128))
    yield case("", "QLinearSigmoid", *x, _scale(0.004), _zero(0), types=UINT8)
    yield case("", "QLinearLeakyRelu", *x, _scale(0.03), _zero(128), types=UINT8, alpha=0.1)
    images = (r.bytes(1, 3, 4, 4), _scale(0.03), _zero(128), _scale(0.02), _zero(120))
    yield case("", "QLinearGlobalAveragePool", *images, types=UINT8, channels_last=0)


def dynamic() -> Iterator[ContribCase]:
    """Quantized weights and results in float."""
    r = Random("dynamic")
    weight: Array = r.signed_bytes(16, 8)
    held = (Const(weight), _scale(0.02), _zero(0, np.int8), Const(r.normal(8)))
    yield case("", "DynamicQuantizeMatMul", r.normal(4, 16), *held, close=(1e-2, 1e-2))
    scales = (Const(np.array(0.02, np.float32)), Const(np.array(0.02, np.float32)))
    given = (r.bytes(4, 16), Const(weight), *scales, _zero(128), _zero(0, np.int8))
    yield case("", "MatMulIntegerToFloat", *given)


def lstms() -> Iterator[ContribCase]:
    """DynamicQuantizeLSTM in each direction."""
    for direction in ("forward", "reverse", "bidirectional"):
        r = Random(direction)
        ways, size, hidden = (2 if direction == "bidirectional" else 1), 6, 8
        scales = [Const(r.uniform(ways, high=0.01)) for _ in range(2)]
        points = [Const(np.zeros(ways, np.int8)) for _ in range(2)]
        yield case(
            direction,
            "DynamicQuantizeLSTM",
            r.normal(5, 2, size),
            Const(r.signed_bytes(ways, size, 4 * hidden)),
            Const(r.signed_bytes(ways, hidden, 4 * hidden)),
            Const(r.normal(ways, 8 * hidden, scale=0.1)),
            *(None,) * 4,
            scales[0],
            points[0],
            scales[1],
            points[1],
            outputs=3,
            close=(1e-2, 1e-2),
            hidden_size=hidden,
            direction=direction,
        )


def casts() -> Iterator[ContribCase]:
    """QuantizeLinear and DequantizeLinear of com.microsoft."""
    r = Random("casts")
    codes = r.uniform(2, 8, high=65535).astype(np.uint16)
    given = (codes, _scale(0.001), _zero(32768, np.uint16))
    yield case("uint16", "DequantizeLinear", *given, types=(1,))
    yield case("uint8", "QuantizeLinear", r.normal(2, 8), _scale(0.02), _zero(128), types=UINT8)
