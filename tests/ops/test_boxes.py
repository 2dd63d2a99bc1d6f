"""Boxes in images."""

from __future__ import annotations

from functools import partial

import pytest

from support.case import MS, K, N, case, const, ints, loose, rand, values
from support.ep import Ep
from support.references import run_op

HALVES = loose(2e-2, 2e-2, "halves are summed in another order", "float16", "bfloat16")
CLOSE = loose(1e-3, 1e-4, "positions are rounded in float32", "float32")
ROIS = values(
    [[0.5, 0.5, 4.0, 5.0], [1.0, 2.0, 3.0, 6.5]], [[0.0, 0.0, 6.0, 6.0], [2.0, 2.0, 2.5, 2.5]]
)
BATCH = ints([0, 1], [1, 0])
BOXES = values(
    [
        [
            [0.0, 0.0, 1.0, 1.0],
            [0.0, 0.1, 1.0, 1.1],
            [0.0, -0.1, 1.0, 0.9],
            [0.0, 10.0, 1.0, 11.0],
            [0.0, 10.1, 1.0, 11.1],
        ]
    ],
    [
        [
            [1.0, 1.0, 0.0, 0.0],
            [0.0, 0.1, 1.0, 1.1],
            [0.0, 0.9, 1.0, -0.1],
            [0.0, 10.0, 1.0, 11.0],
            [0.0, 90.0, 1.0, 91.0],
        ]
    ],
)
RATINGS = values([[[0.9, 0.75, 0.6, 0.95, 0.5], [0.1, 0.2, 0.8, 0.7, 0.6]]])


def nms(*inputs, **options):
    filled = [const(v, "float32") if isinstance(v, float) else v for v in inputs]
    return case("NonMaxSuppression", BOXES, RATINGS, *filled, dtypes=["float32"], **options)


CASES = [
    *(
        case(
            "RoiAlign",
            rand(2, 3, 8, 7),
            ROIS,
            BATCH,
            opset=10,
            output_height=2,
            output_width=3,
            sampling_ratio=s,
            dtypes=["float32"],
            tolerance=CLOSE,
        )
        for s in (0, 2)
    ),
    *(
        case(
            "RoiAlign",
            rand(2, 3, 8, 7),
            ROIS,
            BATCH,
            output_height=2,
            output_width=3,
            mode=m,
            sampling_ratio=2,
            spatial_scale=0.7,
            coordinate_transformation_mode=c,
            dtypes=["float32"],
            tolerance=CLOSE,
        )
        for m in ("avg", "max")
        for c in ("half_pixel", "output_half_pixel")
    ),
    case(
        "RoiAlign",
        rand(2, 3, 8, 7),
        ROIS,
        BATCH,
        output_height=2,
        output_width=3,
        dtypes=["float32"],
        tolerance=CLOSE,
        id="samples-of-boxes",
    ),
    case(
        "MaxRoiPool",
        rand(2, 3, 8, 7),
        values([[0.0, 0.5, 0.5, 4.0, 5.0], [1.0, 1.0, 2.0, 3.0, 6.0]]),
        pooled_shape=[2, 3],
        spatial_scale=1.0,
        dtypes=["float32"],
        reference=partial(run_op, "MaxRoiPool"),  # ORT has the older version only
    ),
    case(
        "MaxRoiPool",
        rand(2, N, K, 7),
        const([[0.0, 0.5, 0.5, 1.0, 5.0], [1.0, 1.0, 1.0, 3.0, 1.0]]),
        pooled_shape=[1, 3],
        dtypes=["float32"],
        reference=partial(run_op, "MaxRoiPool"),
        id="constant-boxes",
    ),
    nms(ints([2], [5]), 0.5, 0.0),
    nms(ints([3]), 0.5, 0.55, opset=10, id="opset10"),
    nms(ints([5]), 0.0, id="no-threshold"),
    nms(ints([4]), 0.5, 0.0, center_point_box=1),
    nms(id="none"),
    *(
        case(
            "CropAndResize",
            rand(2, 3, 8, 7),
            values([[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.2, 1.0]]),
            ints([0, 1], dtype="int32"),
            const([3, 4], "int32"),
            domain=MS,
            mode=m,
            extrapolation_value=7.0,
            dtypes=["float32"],
            tolerance=CLOSE,
        )
        for m in ("bilinear", "nearest")
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)
