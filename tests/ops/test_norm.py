"""Normalizations."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from support.case import K, M, N, case, const, loose, rand, values
from support.ep import Ep
from support.strategies import SIZES, axis, shapes

HALVES = loose(2e-2, 2e-2, "halves are rounded at other places", "float16", "bfloat16")
STASHED = loose(1e-6, 1e-6, "ORT takes the statistics in float32, as stash_type says", "float64")
CHANNELS = (rand(3), rand(3), rand(3), rand(3, low=0.2, high=2))
LATENT = [const(rand(4)), const(rand(4))]


def mean_variance_normalization(x, axes=(0, 2, 3)):
    axes = tuple(axes)
    centred = x - x.mean(axes, keepdims=True)
    return centred / (np.sqrt((centred**2).mean(axes, keepdims=True)) + 1e-9)


CASES = [
    case("BatchNormalization", rand(N, 3, M), *CHANNELS, opset=7, tolerance=HALVES),
    case("BatchNormalization", rand(N, 3, M), *CHANNELS, opset=9, tolerance=HALVES, epsilon=0.1),
    case("BatchNormalization", rand(N, 3, M, K), *CHANNELS, tolerance=HALVES),
    case("BatchNormalization", rand(N, 3), *CHANNELS, tolerance=HALVES, id="matrix"),
    case(
        "BatchNormalization",
        rand(N, 3, M),
        *CHANNELS,
        outputs=3,
        training_mode=1,
        tolerance=HALVES,
        dtypes=["float32"],
    ),
    case(
        "GroupNormalization",
        rand(N, 4, M),
        rand(2),
        rand(2),
        opset=18,
        num_groups=2,
        tolerance=STASHED,
    ),
    case("GroupNormalization", rand(N, 4, M, K), rand(4), rand(4), num_groups=2, tolerance=STASHED),
    case("InstanceNormalization", rand(N, 3, M, K), rand(3), rand(3), tolerance=HALVES),
    case(
        "LayerNormalization",
        rand(N, M, 4),
        rand(4),
        rand(4),
        opset=16,
        id="contrib",
        tolerance=HALVES,
        dtypes=["float32", "float64", "float16"],
    ),
    case("LayerNormalization", rand(N, M, 4), *LATENT, outputs=3, tolerance=HALVES),
    case(
        "LayerNormalization",
        rand(N, M, K),
        rand(M, K),
        axis=1,
        epsilon=0.1,
        tolerance=HALVES,
        id="axis",
    ),
    case("RMSNormalization", rand(N, M, 4), LATENT[0], tolerance=HALVES),
    case("RMSNormalization", rand(N, M, K), rand(M, K), axis=-2, epsilon=0.1, tolerance=HALVES),
    case("SimplifiedLayerNormalization", rand(N, M, 4), LATENT[0], outputs=2, tolerance=HALVES),
    case("LpNormalization", rand(N, M), tolerance=HALVES),
    case("LpNormalization", rand(N, M), axis=0, p=1, tolerance=HALVES),
    case("LpNormalization", values([[3.0, 4.0], [0.0, 0.0]]), id="zeros"),
    case(
        "MeanVarianceNormalization",
        rand(N, 3, M, K),
        tolerance=HALVES,
        reference=mean_variance_normalization,
    ),
    case(
        "MeanVarianceNormalization",
        rand(N, M, K),
        axes=[1, -1],
        tolerance=HALVES,
        reference=mean_variance_normalization,
    ),
]
REFUSED = [
    (
        case("BatchNormalization", rand(2, 3, 4), *CHANNELS, opset=9, outputs=5),
        "the running statistics are outputs, which is training",
    ),
    (
        case("LayerNormalization", rand(2, 4), rand(4), stash_type=11),
        "the statistics are stashed in a type other than float32 and the halves",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


@given(data=st.data(), shape=shapes(min_rank=1))
def test_along_any_axis(data, shape, ep: Ep) -> None:
    along = data.draw(axis(len(shape)))
    assume(0 not in shape[along:])  # the mean of nothing
    names = ["LayerNormalization", "RMSNormalization"]  # ORT refuses the second on empty tensors
    name = data.draw(st.sampled_from(names[:1] if 0 in shape else names))
    weights = [rand(*shape[along:])] * (1 if name[0] == "R" else data.draw(st.integers(1, 2)))
    ep.check_one(
        case(name, rand(*shape), *weights, axis=along, epsilon=0.01, id="any"),
        23 if name[0] == "R" else 17,
        "float32",
    )


@given(data=st.data(), sides=shapes(max_rank=3), batch=SIZES, groups=st.integers(1, 3))
def test_of_channels(data, sides, batch, groups, ep: Ep) -> None:
    channels = groups * data.draw(st.integers(1, 2))
    name, version, options = data.draw(
        st.sampled_from(
            [
                ("BatchNormalization", 15, {}),
                ("InstanceNormalization", 22, {}),
                ("GroupNormalization", 21, {"num_groups": groups}),
            ]
        )
    )
    if name[0] != "B":  # these take at least one side, and ORT refuses them on empty tensors
        batch, *sides = (max(n, 1) for n in (batch, *(sides or (1,))))
    weights = [rand(channels), rand(channels)]
    if name[0] == "B":
        weights += [rand(channels), rand(channels, low=0.5, high=2)]
    x = rand(batch, channels, *sides)
    ep.check_one(case(name, x, *weights, epsilon=0.01, id="any", **options), version, "float32")
