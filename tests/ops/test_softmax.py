"""Softmax, its logarithm, and Hardmax."""

from __future__ import annotations

import numpy as np
import pytest

from support.case import K, M, N, case, rand, values
from support.ep import Ep

NAMES = ("Softmax", "LogSoftmax", "Hardmax")

CASES = [
    # Only float64 Hardmax has no kernel in ORT, and the ONNX reference knows the newer form alone.
    *(
        case(
            name,
            rand(N, M, K),
            opset=11,
            axis=a,
            id=f"flattened-axis={a}",
            dtypes=["float32", "float16"] if name == "Hardmax" else None,
        )
        for name in NAMES
        for a in (0, 1, -1)
    ),
    *(case(name, rand(N, M, K), axis=a) for name in NAMES for a in (0, 1, -1)),
    *(case(name, rand(N, M), id="default") for name in NAMES),
    *(case(name, rand(N, 0, 2), axis=1, id="empty") for name in NAMES[:2]),
    *(
        case(name, values([[1000.0, 1001.0, -np.inf], [3.0, 3.0, 3.0]]), id="large")
        for name in NAMES
    ),
]
REFUSED = [(case("Softmax", rand(2, 3), axis=2), "the axis is out of range")]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
