"""Dropout: an identity in inference, and in training what every generator has in common."""

from __future__ import annotations

import numpy as np
import pytest

from support.case import MS, M, N, case, const, loose, rand, values
from support.ep import Ep
from support.placement import assert_placed, mlx_session
from support.references import feed_of

HALVES = loose(2e-2, 2e-2, "halves are rounded at other places", "float16", "bfloat16")
MANY = rand(64, N, 32, low=1, high=2)
ON, OFF = values(True, dtype="bool"), values(False, dtype="bool")


def dropped(ratio):
    """About `ratio` of the elements are zero, as the mask says, and the others are scaled up."""

    def holds(inputs, outputs):
        x, (y, kept) = inputs[0].astype(np.float64), outputs
        assert (y.shape, kept.shape) == (x.shape, x.shape) and set(np.unique(kept)) == {0, 1}
        assert abs(kept.mean() - (1 - ratio)) < 0.05
        np.testing.assert_allclose(y.astype(np.float64), x * kept / (1 - ratio), 1e-2)

    return holds


def switched(inputs, outputs):
    """training_mode is on in the first round only."""
    x, y = inputs[0], outputs[0]
    if inputs[2]:
        assert 0.2 < np.mean(y == 0) < 0.4
    else:
        np.testing.assert_array_equal(y, x)


CASES = [
    case("Dropout", rand(N, M), opset=7),
    case("Dropout", rand(N, M), opset=10),
    case("Dropout", rand(N, M), outputs=2),
    case("Dropout", rand(N, M), const(0.3, "float32"), const(False, "bool"), id="inference"),
    case("Dropout", rand(N, M), const(0.0, "float32"), const(True, "bool"), id="nothing-dropped"),
    case("Dropout", rand(N, M), const(0.3, "float32"), OFF, outputs=2, id="inference-at-run-time"),
    case("Dropout", rand(N, M), values(0.0), ON, outputs=2, id="nothing-dropped-at-run-time"),
    case(
        "BiasDropout",
        rand(N, M, 8),
        rand(8),
        rand(N, M, 8),
        domain=MS,
        reference=lambda x, b, r: x + b + r,
        tolerance=HALVES,
    ),
]
RANDOM = [
    case("Dropout", MANY, const(0.3), const(True, "bool"), outputs=2, holds=dropped(0.3)),
    case("Dropout", MANY, values(0.25), ON, outputs=2, holds=dropped(0.25), id="run-time", seed=3),
    case("Dropout", MANY, values(0.3), values(True, False, "bool"), holds=switched, id="switched"),
    case(
        "BiasDropout",
        MANY,
        const(np.zeros(32)),
        const(np.zeros(1)),
        const(0.5),
        ON,
        domain=MS,
        outputs=2,
        holds=dropped(0.5),
    ),
]
CASES += RANDOM
FAILING = [
    (case("Dropout", rand(3), values(1.0), ON), "the ratio 1.0 is not in [0, 1)"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "text"), FAILING, ids=str)
def test_failing(c, text, ep: Ep) -> None:
    ep.fails(c, text)


@pytest.mark.parametrize("constant", [False, True])
def test_each_run_drops_other_elements(constant, ep: Ep) -> None:
    on = const(True, "bool") if constant else ON
    c = case("Dropout", const(rand(40)), const(0.5, "float32"), on, outputs=2)
    arrays = c.arrays("float32", 0)
    session = mlx_session(c.model(arrays, 13))
    assert_placed(session)
    first, second = (session.run(None, feed_of(arrays, c))[1] for _ in range(2))
    assert (first != second).any()
