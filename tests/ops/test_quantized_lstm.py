"""DynamicQuantizeLSTM."""

from __future__ import annotations

import pytest

from support.case import MS, case, const, ints, loose, omitted, rand
from support.ep import Ep

STEPS = loose(1e-2, 1e-2, "rounding the state may differ by one step")


def lstm(*more, directions=1, per_channel=False, dtype="int8", **options):
    low, high = (-90, 90) if dtype == "int8" else (0, 200)
    scale = rand(
        directions, *((32,) if per_channel else ()), low=0.002, high=0.008, dtype="float32"
    )
    zero = rand(
        directions,
        *((32,) if per_channel else ()),
        low=0,
        high=1 if dtype == "int8" else 100,
        dtype=dtype,
    )
    filled = [*more, *[omitted()] * (5 - len(more))]
    return case(
        "DynamicQuantizeLSTM",
        rand(4, 3, 6, dtype="float32"),
        const(rand(directions, 6, 32, low=low, high=high, dtype=dtype)),
        const(rand(directions, 8, 32, low=low, high=high, dtype=dtype)),
        *filled,
        *(const(x) for x in (scale, zero, scale, zero)),
        domain=MS,
        outputs=3,
        hidden_size=8,
        tolerance=STEPS,
        **options,
    )


def bias(directions=1):
    return const(rand(directions, 64, low=-0.3, high=0.3, dtype="float32"))


CASES = [
    lstm(id="plain"),
    lstm(bias(), dtype="uint8", id="unsigned"),
    lstm(bias(), direction="reverse", id="reverse"),
    lstm(
        bias(2),
        ints([4, 2, 3], dtype="int32"),
        rand(2, 3, 8, dtype="float32"),
        rand(2, 3, 8, dtype="float32"),
        directions=2,
        direction="bidirectional",
        id="bidirectional",
    ),
    lstm(bias(), per_channel=True, id="channels"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)
