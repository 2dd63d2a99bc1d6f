"""Fourier transforms, windows and mel weights."""

from __future__ import annotations

import pytest

from support.case import Dim, N, case, const, ints, loose, omitted, onnx_code, rand, values
from support.ep import Ep

SUMS = loose(1e-3, 1e-4, "summed in another order", "float32")
WINDOW = loose(1e-5, 1e-6, "the references compute in float32", "float32")
T = Dim("T", (10, 13))
WINDOWS = ("HannWindow", "HammingWindow", "BlackmanWindow")
SINGLE = ["float32"]

CASES = [
    case("DFT", rand(N, T, 1), opset=17, dtypes=SINGLE, tolerance=SUMS),
    case("DFT", rand(N, 6, T, 2), opset=17, axis=2, inverse=1, dtypes=SINGLE, tolerance=SUMS),
    case("DFT", rand(N, T, 1), const(8), opset=17, onesided=1, dtypes=SINGLE, tolerance=SUMS),
    case("DFT", rand(N, T, 2), dtypes=SINGLE, tolerance=SUMS),
    case(
        "DFT", rand(N, 6, T, 1), ints(16, 5), const(1), dtypes=SINGLE, tolerance=SUMS, id="length"
    ),
    case("DFT", rand(N, T, 1), omitted(), const(1), onesided=1, dtypes=SINGLE, tolerance=SUMS),
    case("DFT", rand(N, T, 2), omitted(), ints(-2), inverse=1, dtypes=SINGLE, tolerance=SUMS),
    *(case(name, ints(7, 10), periodic=p, tolerance=WINDOW) for name in WINDOWS for p in (0, 1)),
    *(
        case(name, const(6), output_datatype=onnx_code("float64"), tolerance=WINDOW)
        for name in WINDOWS
    ),
    case(
        "MelWeightMatrix",
        ints(8, 5),
        ints(16, 32),
        ints(8192, 4096),
        values(0.0, dtype="float32"),
        values(2000.0, dtype="float32"),
        tolerance=SUMS,
    ),
    case("STFT", rand(N, 32, 1), const(8), const(rand(16)), dtypes=SINGLE, tolerance=SUMS),
    case(
        "STFT",
        rand(N, 32, 1),
        ints(8, 4),
        omitted(),
        ints(16, 12),
        onesided=0,
        dtypes=SINGLE,
        tolerance=SUMS,
    ),
    case(
        "STFT",
        rand(2, 32, 2),
        const(8),
        rand(16),
        onesided=0,
        dtypes=SINGLE,
        tolerance=SUMS,
        id="complex",
    ),
]
REFUSED = [
    (case("DFT", rand(2, 8, 3), dtypes=SINGLE), "the last axis is neither real nor complex"),
    (
        case("STFT", rand(2, 32, 3), const(8), rand(16), dtypes=SINGLE),
        "the signal is not [batch, length, 1 or 2]",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
