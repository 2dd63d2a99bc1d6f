"""Multi-head attention of single tokens, and caches that beams share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from support.case import MS, Array, Case, Dim, Input, case, ints, loose, omitted, rand
from support.edges import run_session
from support.ep import Ep
from support.placement import assert_placed, mlx_session
from support.references import feed_of, ort_cpu

NONE = omitted()
HALF_SUMS = loose(2e-2, 2e-2, "halves are summed in another order")
TOKEN = (rand(4, 1, 32), rand(4, 1, 32), rand(4, 1, 32))
BUFFER = (rand(4, 2, 8, 16), rand(4, 2, 8, 16))


def int32(given: Any, then: Any = None) -> Input:
    return ints(given, then, "int32")


FILLED = int32([3], [5])
BEAMS = rand(2, 2, 8, dtype="int32", low=0, high=2)
MASK = int32([[1, 0, 1, 1]] * 4, [[1, 0, 1, 1, 0, 1]] * 4)
BIAS = rand(1, 2, 1, Dim("T", (4, 6)))


def decoder(*inputs: Input, id: str, outputs: int = 3, **options: Any) -> Case:
    return case(
        "DecoderMaskedMultiHeadAttention",
        *inputs,
        domain=MS,
        id=id,
        outputs=outputs,
        tolerance=HALF_SUMS,
        **{"num_heads": 2, "past_present_share_buffer": 1, **options},
    )


def mha(*inputs: Input, id: str, **options: Any) -> Case:
    return case(
        "MultiHeadAttention",
        *inputs,
        domain=MS,
        id=id,
        outputs=3,
        tolerance=HALF_SUMS,
        num_heads=2,
        **options,
    )


def _growing(q: Array, k: Any, v: Any, *more: Any, **rest: Any) -> list[Array]:
    """A past that grows, packed or not; the CPU kernel has neither."""
    past_k, past_v, bias = more[2], more[3], more[7] if len(more) > 7 else None
    parts = np.split(q, 3, axis=-1) if k is None else [q, k, v]
    parts = [t.astype(np.float64) for t in parts]
    if bias is not None:
        parts = [t + b for t, b in zip(parts, np.split(bias, 3), strict=True)]
    q_, k_, v_ = (t.reshape(*t.shape[:2], 2, -1).swapaxes(1, 2) for t in parts)
    keys, values = np.concatenate([past_k, k_], axis=2), np.concatenate([past_v, v_], axis=2)
    scores = q_ @ keys.swapaxes(-1, -2) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = (weights / weights.sum(-1, keepdims=True) @ values).swapaxes(1, 2).reshape(len(q), 1, -1)
    return [t.astype(q.dtype) for t in (y, keys, values)]


GROWING = (NONE, NONE, rand(4, 2, Dim("P", (3, 5)), 16), rand(4, 2, Dim("P", (3, 5)), 16))
ALONE = {"past_present_share_buffer": 0, "reference": _growing}
CASES = [
    decoder(*TOKEN, NONE, NONE, *BUFFER, FILLED, id="shared"),
    decoder(*TOKEN, MASK, BIAS, *BUFFER, FILLED, id="masked"),
    decoder(*TOKEN, NONE, NONE, *BUFFER, FILLED, NONE, NONE, rand(96), id="bias"),
    decoder(*TOKEN, NONE, NONE, *BUFFER, FILLED, int32([2]), BEAMS, id="beams"),
    decoder(*TOKEN, MASK, BIAS, *BUFFER, FILLED, int32([2]), BEAMS, id="beams-masked"),
    decoder(rand(4, 1, 32), *BUFFER, id="cross", outputs=1, past_present_share_buffer=0),
    decoder(
        *(rand(4, 1, 32), *BUFFER, int32([[1, 1, 0, 1, 0, 1, 1, 1]] * 4)),
        id="cross-masked",
        outputs=1,
        past_present_share_buffer=0,
    ),
    decoder(*TOKEN, *GROWING, id="growing", **ALONE),
    decoder(rand(4, 1, 96), NONE, NONE, *GROWING, id="packed", **ALONE),
    decoder(
        *(rand(4, 1, 96), NONE, NONE, *GROWING, NONE, NONE, NONE, rand(96)),
        id="packed-bias",
        **ALONE,
    ),
    mha(*TOKEN, NONE, NONE, NONE, *BUFFER, FILLED, BEAMS, id="beams"),
    mha(*TOKEN, NONE, MASK, BIAS, *BUFFER, FILLED, BEAMS, id="beams-masked"),
]

REFUSED = [
    (decoder(TOKEN[0], TOKEN[1], id="half"), "only one of key and value"),
    (
        decoder(*TOKEN, NONE, NONE, BUFFER[0], id="half-a-past"),
        "only one of past_key and past_value",
    ),
    (decoder(rand(4, 1, 96), id="alone"), "neither keys nor a past"),
    (
        decoder(*TOKEN, NONE, NONE, *BUFFER, id="unknown-length"),
        "a shared past without past_sequence_length",
    ),
    (
        decoder(*TOKEN, NONE, NONE, *BUFFER, FILLED, int32([2]), id="lost-beams"),
        "beams without cache_indirection",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c: Case, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c: Case, sentence: str, ep: Ep) -> None:
    ep.refuse(c, sentence)


@pytest.mark.parametrize("filled", [-1, 8])
def test_the_new_rows_fit_the_buffer(filled: int, ep: Ep) -> None:
    c = decoder(*TOKEN, NONE, NONE, *BUFFER, int32([filled]), id="full")
    ep.fails(c, "do not fit the past")


def test_beams_are_there(ep: Ep) -> None:
    beams = int32(np.full((2, 2, 8), 7))
    c = decoder(*TOKEN, NONE, NONE, *BUFFER, FILLED, int32([2]), beams, id="seventh")
    ep.fails(c, "index 7 is out of range for an axis of 2")


SCORED = [
    decoder(*TOKEN, MASK, BIAS, *BUFFER, FILLED, id="scores", outputs=4, output_qk=1),
    replace(mha(*TOKEN, NONE, MASK, BIAS, *BUFFER, FILLED, id="scores"), outputs=(True,) * 4),
]


@pytest.mark.parametrize("c", SCORED, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scores_have_a_type_of_their_own(c: Case, dtype: str) -> None:
    arrays = c.arrays(dtype, 0)
    model = c.model(arrays, 1)
    model.graph.output[3].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    session = mlx_session(model)
    assert_placed(session)
    got = run_session(session, feed_of(arrays, c))
    wide = [None if a is None or a.dtype.kind == "i" else a.astype(np.float64) for a in arrays]
    q, k = (t.reshape(4, 1, 2, 16).swapaxes(1, 2) for t in wide[:2])
    past = wide[5 if c.op_type.startswith("Decoder") else 6]
    hidden = np.where(np.array([1, 0, 1, 1]), 0, -10000.0)
    bias = next(a for a in wide if a is not None and a.shape == (1, 2, 1, 4))
    scores = q @ np.concatenate([past[:, :, :3], k], axis=2).swapaxes(-1, -2) / 4 + bias + hidden
    assert got[3].dtype == np.float32
    np.testing.assert_allclose(got[3], scores, 2e-3, 2e-3)
    if dtype == "float32" and c.op_type == "MultiHeadAttention":
        np.testing.assert_allclose(got[3], ort_cpu(model, feed_of(arrays, c))[3], 1e-4, 1e-4)
