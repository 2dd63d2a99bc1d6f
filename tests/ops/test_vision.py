"""Grids, samples and patches."""

from __future__ import annotations

import numpy as np
import pytest

from support.case import MS, K, M, N, case, const, ints, loose, rand
from support.ep import Ep

SUMS = loose(1e-3, 1e-4, "positions are rounded in float32", "float32")
SINGLE = ["float32"]
GRID = rand(N, M, K, 2, low=-1.3, high=1.3)


def unfold(x, dim=-1, *, size, step=1):
    windows = np.lib.stride_tricks.sliding_window_view(x, size, dim)
    chosen = [slice(None)] * windows.ndim
    chosen[dim % x.ndim] = slice(None, None, step)
    return windows[tuple(chosen)]


CASES = [
    *(
        case(
            "AffineGrid",
            rand(2, 2, 3),
            ints([2, 1, 4, 5], [2, 1, 3, 2]),
            align_corners=a,
            dtypes=SINGLE,
            id=f"2d-{a}",
        )
        for a in (0, 1)
    ),
    case("AffineGrid", rand(2, 3, 4), const([2, 1, 3, 4, 5]), dtypes=SINGLE, id="3d"),
    case("Col2Im", rand(N, 12, 4), const([3, 4]), const([2, 3])),
    case("Col2Im", rand(N, 4, 9), const([5, 5]), const([2, 2]), strides=[2, 2], pads=[1, 0, 0, 1]),
    *(
        case(
            "GridSample",
            rand(N, 2, 5, 6),
            GRID,
            opset=16,
            mode=m,
            padding_mode=p,
            align_corners=a,
            dtypes=SINGLE,
            tolerance=SUMS,
        )
        for m in ("bilinear", "nearest", "bicubic")
        for p in ("zeros", "border", "reflection")
        for a in (0, 1)
    ),
    *(
        case("GridSample", rand(N, 2, 5, 6), GRID, mode=m, dtypes=SINGLE, tolerance=SUMS)
        for m in ("linear", "nearest", "cubic")
    ),
    case(
        "GridSample",
        rand(1, 2, 4, 5, 3),
        rand(1, 2, 3, 4, 3, low=-1.2, high=1.2),
        dtypes=SINGLE,
        tolerance=SUMS,
        id="3d",
    ),
    case(
        "GridSample",
        rand(N, 2, 5, 6),
        GRID,
        domain=MS,
        mode="bilinear",
        dtypes=SINGLE,
        tolerance=SUMS,
    ),
    case("UnfoldTensor", rand(N, 9), domain=MS, size=3, step=2, reference=unfold),
    case("UnfoldTensor", rand(N, 9, M), domain=MS, dim=1, size=4, reference=unfold),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)
