"""GroupQueryAttention: prompts, single tokens and chunks, in the forms that decoders use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnx

from conformance.contrib.build import FLOATS, Const, ContribCase, Random, case
from conformance.contrib.layers import angles

DECODE: Final = {"length": 1, "past": 7}

FORMS: Final[dict[str, dict[str, Any]]] = {
    "prompt": {},
    "prompt_no_rotary": {"rotates": False},
    "prompt_packed": {"packed": True},
    "decode": DECODE,
    "decode_packed": {**DECODE, "packed": True},
    "decode_all_heads": {**DECODE, "kv_heads": 4},
    "decode_one_head": {**DECODE, "kv_heads": 1},
    "chunk": {"length": 4, "past": 6},
    "interleaved": {"length": 1, "past": 5, "rotary_interleaved": 1},
    "partial_rotary": {"size": 32, "rotary_size": 16},
    "scale": {"scale": 0.3},
    "softcap": {"softcap": 2.0},
    "window": {"length": 12, "local_window_size": 4},
    "window_decode": {"length": 1, "past": 11, "local_window_size": 4},
    "sink": {"has_sink": True},
    "sink_decode": {"length": 1, "past": 6, "has_sink": True},
    "smooth": {"smooth_softmax": 1},
    "bias": {"has_bias": True},
    "bias_decode": {**DECODE, "has_bias": True},
    "positions": {"has_positions": True},
    "batch": {"batch": 3},
    "batch_decode": {"batch": 3, "length": 1, "past": 9},
    "shared_prompt": {"length": 6, "capacity": 16},
    "shared_decode": {"length": 1, "past": 6, "capacity": 16},
    "shared_ragged_decode": {"batch": 2, "length": 1, "past": 6, "capacity": 16, "last": [6, 3]},
    "ragged_prompt": {"batch": 2, "length": 6, "capacity": 16, "last": [5, 3]},
    "both_ways": {"rotates": False, "causal": 0},
    "window_cache": {
        "length": 1,
        "past": 5,
        "capacity": 8,
        "local_window_size": 8,
        "sliding_window_cache": 1,
    },
}


def cases() -> Iterator[ContribCase]:
    """Every form in both dtypes."""
    for label, dtype in FLOATS.items():
        for form, own in FORMS.items():
            yield group_query(f"{form}_{label}", dtype, **own)


def group_query(
    name: str,
    dtype: Any,
    *,
    batch: int = 1,
    length: int = 8,
    past: int = 0,
    capacity: int | None = None,
    kv_heads: int = 2,
    size: int = 16,
    rotary_size: int | None = None,
    last: list[int] | None = None,
    packed: bool = False,
    has_positions: bool = False,
    has_bias: bool = False,
    has_sink: bool = False,
    rotates: bool = True,
    **attributes: Any,
) -> ContribCase:
    """One case; `last` is the index of the last token of each row."""
    heads = 4
    r = Random(name)
    total = past + length
    widths = (heads * size, kv_heads * size, kv_heads * size)
    q, k, v = (r.normal(batch, length, w, dtype=dtype) for w in widths)
    cache = (batch, kv_heads, past if capacity is None else capacity, size)
    pasts = r.normal(*cache, dtype=dtype), r.normal(*cache, dtype=dtype)
    lasts = np.array(last or [total - 1] * batch, np.int32)
    longest = np.array(lasts.max() + 1, np.int32)
    turns = [Const(c) for c in angles(64, (rotary_size or size) // 2, 1000, dtype)]
    positions = np.tile(np.arange(past, total), (batch, 1)).astype(np.int64)
    return case(
        name,
        "GroupQueryAttention",
        np.concatenate([q, k, v], -1) if packed else q,
        *((None, None) if packed else (k, v)),
        *pasts,
        lasts,
        longest,
        *(turns if rotates else (None, None)),
        positions if has_positions else None,
        r.normal(1, heads, length, total, dtype=dtype) if has_bias else None,
        r.normal(heads, dtype=dtype) if has_sink else None,
        outputs=3,
        defined=without_padding,
        num_heads=heads,
        kv_num_heads=kv_heads,
        do_rotary=int(rotates),
        **attributes,
    )


def without_padding(model: onnx.ModelProto, inputs: list[Any], wanted: list[Any]) -> list[Any]:
    """NaN for the rows of a prompt and of the caches after each row's last token."""
    given = dict(zip((i.name for i in model.graph.input), inputs, strict=True))
    y, *caches = (w.copy() for w in wanted)
    is_prompt = int(given["x6"]) == given["x0"].shape[1]
    for row, last in enumerate(given["x5"]):
        for cache in caches:
            cache[row, :, last + 1 :] = np.nan
        if is_prompt:
            y[row, last + 1 :] = np.nan
    return [y, *caches]
