"""Grouped-query attention in random forms, as ONNX Runtime's CPU kernel has them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from support.case import MS, Case, Input, case, const, ints, omitted, rand
from support.ep import Ep

NONE = omitted()
SIZE = 32
_ANGLES = np.arange(32)[:, None] / 100 ** (np.arange(16) / 16)


def int32(given: Any) -> Input:
    return ints(given, dtype="int32")


@st.composite
def forms(draw: st.DrawFn) -> Case:
    """Any of the forms together: packing, cache, codes, rotation, bias, window, cap and sinks."""

    def chance() -> bool:
        return draw(st.integers(0, 3)) == 0

    groups, shared = draw(st.sampled_from([(1, 2), (2, 1), (2, 2)]))
    heads, past, batch = groups * shared, draw(st.sampled_from([0, 4, 7])), draw(st.integers(1, 2))
    length = 1 if past and batch > 1 else draw(st.integers(1, 4))
    total = past + length
    capacity = total + draw(st.integers(0, 4)) if draw(st.booleans()) else past
    dtype = draw(st.sampled_from([None, "int8", "uint8"]))
    options: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
    widths = [heads * SIZE, groups * SIZE, groups * SIZE]
    new = [rand(batch, length, sum(widths)), NONE, NONE]
    if draw(st.booleans()):
        new = [rand(batch, length, width) for width in widths]
    cache, scales = rand(batch, groups, capacity, SIZE), [NONE, NONE]
    if dtype is not None:
        kind = draw(st.sampled_from(["PER_TENSOR", "PER_CHANNEL"]))
        bits, step = (8, 0.02) if dtype == "int8" else (4, 0.25)
        low, high = (-127, 128) if dtype == "int8" else (0, 256)
        cache = rand(*(batch, groups, capacity, SIZE * bits // 8), low=low, high=high, dtype=dtype)
        shape = (1,) if kind == "PER_TENSOR" else (1, groups, 1, SIZE)
        scales = [const(rand(*shape, low=step, high=2 * step, dtype="float32"))] * 2
        options |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
    tables = [NONE, NONE]
    if draw(st.booleans()):
        width = draw(st.sampled_from([8, 16]))
        tables = [const(f(_ANGLES[:, :width])) for f in (np.cos, np.sin)]
        options |= {"do_rotary": 1, "rotary_interleaved": draw(st.integers(0, 1))}
    bias = rand(draw(st.sampled_from([1, batch])), heads, length, total) if chance() else NONE
    sink = rand(heads) if chance() else NONE
    if chance():
        options["local_window_size"] = draw(st.integers(1, 4))
    elif chance():
        options["causal"] = 0
    if chance():
        options["softcap"] = 1.5
    scored = chance()
    if scored:
        options["qk_output"] = draw(st.integers(1, 2))
    return case(
        "GroupQueryAttention",
        *(*new, cache, cache, int32([total - 1] * batch), int32(total)),
        *(*tables, NONE, bias, sink, *scales),
        domain=MS,
        id="any",
        outputs=4 if scored else 3,
        view=lambda outputs: [y[:, :, :total] if i in (1, 2) else y for i, y in enumerate(outputs)],
        **options,
    )


@settings(max_examples=40)
@given(c=forms())
def test_any_form(c: Case, ep: Ep) -> None:
    ep.check_one(c, 1, "float32")
