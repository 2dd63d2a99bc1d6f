"""DeformConv."""

from __future__ import annotations

import pytest

from support.case import N, case, const, loose, rand
from support.ep import Ep

SUMS = loose(2e-2, 2e-2, "halves are summed in another order", "float16", "bfloat16")

CASES = [
    case(
        "DeformConv",
        rand(N, 2, 6, 5),
        const(rand(3, 2, 2, 2)),
        rand(N, 8, 5, 4, low=-1, high=1),
        tolerance=SUMS,
        id="plain",
    ),
    case(
        "DeformConv",
        rand(N, 4, 6, 5),
        const(rand(4, 2, 3, 2)),
        rand(N, 24, 3, 4, low=-2, high=2),
        const(rand(4)),
        rand(N, 12, 3, 4, low=0, high=1),
        group=2,
        offset_group=2,
        strides=[2, 1],
        pads=[1, 0, 0, 0],
        tolerance=SUMS,
        id="groups",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)
