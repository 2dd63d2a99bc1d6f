"""Losses."""

from __future__ import annotations

import pytest

from support.case import M, N, case, loose, rand
from support.ep import Ep

HALVES = loose(2e-2, 2e-2, "halves are summed in another order", "float16", "bfloat16")
LABELS = rand(N, M, low=0, high=4, dtype="int64")

CASES = [
    *(
        case("NegativeLogLikelihoodLoss", rand(N, 4, M), LABELS, reduction=r, tolerance=HALVES)
        for r in ("none", "mean", "sum")
    ),
    case(
        "NegativeLogLikelihoodLoss",
        rand(N, 4, M),
        LABELS,
        rand(4, low=0.5, high=2),
        ignore_index=1,
        tolerance=HALVES,
    ),
    case(
        "NegativeLogLikelihoodLoss",
        rand(N, 4),
        rand(N, low=0, high=4, dtype="int32"),
        tolerance=HALVES,
        id="2d",
    ),
    *(
        case(
            "SoftmaxCrossEntropyLoss",
            rand(N, 4, M),
            LABELS,
            reduction=r,
            outputs=2,
            tolerance=HALVES,
        )
        for r in ("none", "mean", "sum")
    ),
    case(
        "SoftmaxCrossEntropyLoss",
        rand(N, 4, M),
        LABELS,
        rand(4, low=0.5, high=2),
        ignore_index=1,
        tolerance=HALVES,
    ),
    case(
        "SoftmaxCrossEntropyLoss",
        rand(N, 4, M),
        LABELS,
        rand(4, low=0.5, high=2),
        reduction="none",
        tolerance=HALVES,
        id="weights",
    ),
]
REFUSED = [
    (
        case(
            "NegativeLogLikelihoodLoss",
            rand(2, 4),
            rand(2, low=0, high=4, dtype="int64"),
            reduction="max",
        ),
        "reduction max is unknown",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
