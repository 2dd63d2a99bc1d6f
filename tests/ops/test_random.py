"""Random values: their shape, dtype and distribution, since no two generators agree."""

from __future__ import annotations

import numpy as np
import pytest

from support.case import case, onnx_code, rand, values
from support.ep import Ep

SHAPE = [64, 128]


def normal(mean, scale, dtype="float32"):
    def holds(inputs, outputs):
        (y,) = outputs
        assert y.dtype == dtype and y.shape in (tuple(SHAPE), *(x.shape for x in inputs))
        y = y.astype(np.float64)
        assert abs(y.mean() - mean) < 0.1 * scale and abs(y.std() - scale) < 0.1 * scale

    return holds


def uniform(low, high, dtype="float32"):
    def holds(inputs, outputs):
        (y,) = outputs
        assert y.dtype == dtype and y.shape in (tuple(SHAPE), *(x.shape for x in inputs))
        y = y.astype(np.float64)
        assert (
            low <= y.min()
            and y.max() < high
            and abs(y.mean() - (low + high) / 2) < 0.1 * (high - low)
        )

    return holds


def drawn(inputs, outputs):
    (p,), (y,) = inputs, outputs
    assert y.shape == p.shape and set(np.unique(y.astype(np.float64))) <= {0, 1}
    assert abs(float(y.astype(np.float64).mean()) - float(p.astype(np.float64).mean())) < 0.1


def chosen(inputs, outputs):
    (y,) = outputs
    assert (
        y.shape == (2, 500)
        and set(np.unique(y[0])) <= {0, 2}
        and abs(float((y[0] == 2).mean()) - 0.5) < 0.15
    )
    assert set(np.unique(y[1])) == {1}


LOGITS = values(np.log(np.array([[1, 1e-30, 1], [1e-30, 1, 1e-30]])))

CASES = [
    case("RandomNormal", shape=SHAPE, holds=normal(0, 1)),
    case(
        "RandomNormal",
        shape=SHAPE,
        mean=3.0,
        scale=2.0,
        seed=7.0,
        dtype=onnx_code("float16"),
        holds=normal(3, 2, "float16"),
    ),
    case("RandomUniform", shape=SHAPE, holds=uniform(0, 1)),
    case(
        "RandomUniform",
        shape=SHAPE,
        low=-2.0,
        high=3.0,
        seed=7.0,
        dtype=onnx_code("float64"),
        holds=uniform(-2, 3, "float64"),
    ),
    case("RandomNormalLike", rand(64, 100), mean=1.0, dtypes=["float32"], holds=normal(1, 1)),
    case(
        "RandomNormalLike",
        rand(64, 100),
        dtypes=["float32"],
        dtype=onnx_code("float16"),
        holds=normal(0, 1, "float16"),
    ),
    case("RandomUniformLike", rand(64, 100), high=2.0, dtypes=["float32"], holds=uniform(0, 2)),
    case("Bernoulli", rand(64, 100, low=0, high=1), holds=drawn),
    case("Bernoulli", rand(64, 100, low=0, high=1), dtype=onnx_code("bool"), holds=drawn),
    case("Multinomial", LOGITS, sample_size=500, dtypes=["float32"], holds=chosen),
    case(
        "Multinomial",
        LOGITS,
        sample_size=500,
        seed=3.0,
        dtype=onnx_code("int64"),
        dtypes=["float32"],
        holds=chosen,
    ),
]
REFUSED = [
    (
        case("RandomNormal", shape=[3], dtype=onnx_code("int32")),
        "the result type int32 is not a float type",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
