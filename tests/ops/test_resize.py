"""Resize and Upsample."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from support.case import Dim, N, case, const, ints, loose, omitted, rand, values
from support.ep import Ep

BLENDS = loose(1e-3, 1e-4, "positions are rounded in float32", "float32", "float64")
H = Dim("H", (4, 7))
MODES = ("nearest", "linear", "cubic")
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
FLOATS = ["float32"]
NUMBERS = ["float32", "float64", "float16", "bfloat16", "uint8", "int8", "int32"]


def scales(*by: float):
    return const([1.0, 1.0, *by], "float32")


CASES = [
    case(
        "Resize",
        rand(1, 2, 2, 3),
        omitted(),
        omitted(),
        const([1, 2, 2, 1]),
        mode="cubic",
        coordinate_transformation_mode="pytorch_half_pixel",
        dtypes=FLOATS,
        tolerance=BLENDS,
        id="one-output",
    ),
    *(
        case(
            "Upsample",
            rand(N, 2, H, 3),
            opset=7,
            mode=m,
            scales=[1.0, 1.0, 2.0, 3.0],
            dtypes=FLOATS,
        )
        for m in ("nearest", "linear")
    ),
    *(
        case("Upsample", rand(N, 2, H, 3), scales(2.0, 1.5), mode=m, dtypes=FLOATS)
        for m in ("nearest", "linear")
    ),
    *(
        case("Resize", rand(N, 2, H, 4), scales(2.0, 0.5), opset=10, mode=m, dtypes=FLOATS)
        for m in ("nearest", "linear")
    ),
    *(
        case(
            "Resize",
            rand(N, 2, H, 5),
            omitted(),
            scales(2.0, 0.6),
            mode=m,
            coordinate_transformation_mode=c,
            dtypes=FLOATS,
            tolerance=BLENDS,
        )
        for m in MODES
        for c in COORDINATES
    ),
    *(
        case(
            "Resize",
            rand(1, 1, 4, 4),
            omitted(),
            omitted(),
            const([1, 1, 3, 6]),
            mode="nearest",
            nearest_mode=n,
            coordinate_transformation_mode="asymmetric",
            dtypes=FLOATS,
        )
        for n in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    ),
    case(
        "Resize",
        rand(1, 2, 4, 5),
        omitted(),
        omitted(),
        ints([1, 2, 8, 5], [1, 2, 2, 9]),
        mode="linear",
        dtypes=FLOATS,
        tolerance=BLENDS,
        id="run-time-sizes",
    ),
    case(
        "Resize",
        rand(1, 2, 4, 5),
        omitted(),
        values([1.0, 1.0, 2.0, 1.0], [1.0, 1.0, 0.5, 2.0], "float32"),
        mode="linear",
        dtypes=FLOATS,
        tolerance=BLENDS,
        id="run-time-scales",
    ),
    case(
        "Resize",
        rand(1, 2, 4, 5),
        const([0.0, 0.0, 1.0, 1.0], "float32"),
        scales(2.0, 2.0),
        opset=11,
        mode="linear",
        dtypes=FLOATS,
        tolerance=BLENDS,
        id="opset11",
    ),
    case(
        "Resize",
        rand(1, 2, 4, 5),
        omitted(),
        scales(2.0, 2.0),
        opset=13,
        mode="cubic",
        cubic_coeff_a=-0.5,
        exclude_outside=1,
        dtypes=FLOATS,
        tolerance=BLENDS,
        id="opset13",
    ),
    case(
        "Resize",
        rand(1, 1, 5, 5),
        const([0.0, 0.0, 0.1, -0.2, 1.0, 1.0, 0.9, 1.2], "float32"),
        omitted(),
        const([1, 1, 4, 7]),
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=7.0,
        dtypes=FLOATS,
        tolerance=BLENDS,
        id="crop",
    ),
    *(
        case(
            "Resize",
            rand(1, 2, 6, 8),
            omitted(),
            omitted(),
            const([3, 3]),
            mode=m,
            axes=[2, 3],
            antialias=1,
            dtypes=FLOATS,
            tolerance=BLENDS,
            id=f"antialias-{m}",
        )
        for m in ("linear", "cubic")
    ),
    *(
        case(
            "Resize",
            rand(1, 2, 6, 8),
            omitted(),
            omitted(),
            const([9, 10]),
            axes=[2, 3],
            keep_aspect_ratio_policy=p,
            dtypes=FLOATS,
        )
        for p in ("not_larger", "not_smaller")
    ),
    case(
        "Resize",
        rand(1, 2, 4, 4),
        omitted(),
        scales(2.0, 2.0),
        mode="nearest",
        id="dtypes",
        dtypes=NUMBERS,
    ),
]
REFUSED = [
    (
        case("Resize", rand(1, 1, 4, 4), omitted(), scales(2.0, 2.0), mode="sinc"),
        "the mode is not nearest, linear or cubic",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


@given(
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    target=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    mode=st.sampled_from(MODES),
    coordinates=st.sampled_from(COORDINATES),
)
def test_resize_to_sizes(size, target, mode, coordinates, ep: Ep) -> None:
    one = mode == "cubic" and coordinates == "pytorch_half_pixel" and 1 in target
    c = case(
        "Resize",
        rand(1, 2, *size),
        omitted(),
        omitted(),
        ints([1, 2, *target]),
        mode=mode,
        coordinate_transformation_mode=coordinates,
        tolerance=BLENDS,
        id="one-output" if one else "any",
    )
    ep.check_one(c, 13, "float32")
