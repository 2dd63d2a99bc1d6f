"""Attention over blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime as ort
import pytest

from support.case import MS, Array, Case, Input, case, const, ints, loose, omitted, rand
from support.ep import Ep

HEADS = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}
CAPACITY, BLOCKS = 64, 4
HALF_SUMS = loose(2e-2, 2e-2, "halves are summed in another order")
_ANGLES = np.arange(CAPACITY)[:, None] / 100 ** (np.arange(8) / 8)
COS, SIN = const(np.cos(_ANGLES)), const(np.sin(_ANGLES))
NONE = omitted()
# A band of two blocks, and the first block with one's own.
SEEN = np.array(
    [
        [[j <= i and i - j < 2 for j in range(BLOCKS)] for i in range(BLOCKS)],
        [[j in (0, i) for j in range(BLOCKS)] for i in range(BLOCKS)],
    ]
)


def compressed(seen: Array) -> tuple[Input, Input]:
    ends = np.concatenate([np.zeros((len(seen), 1), int), seen.sum(-1).cumsum(-1)], axis=1)
    columns = np.full((len(seen), ends.max() + 1), -1)
    for layout, row in enumerate(seen):
        found = row.nonzero()[1]
        columns[layout, : len(found)] = found
    return const(ends, "int32"), const(columns, "int32")


def _on_cpu(*given: Array, **attributes: Any) -> list[Array]:
    """ONNX Runtime's kernel, which wants past and present in one memory."""
    feed = {f"x{i}": a for i, a in enumerate(given) if a is not None}
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(given)]
    node = oh.make_node("SparseAttention", names, ["y", "k", "v"], domain=MS, **attributes)
    inputs = [
        oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feed.items()
    ]
    outputs = [onnx.ValueInfoProto(name=n) for n in ("y", "k", "v")]
    model = oh.make_model(
        oh.make_graph([node], "reference", inputs, outputs),
        opset_imports=[oh.make_opsetid("", 21), oh.make_opsetid(MS, 1)],
        ir_version=10,
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    bound = {n: ort.OrtValue.ortvalue_from_numpy(a.copy()) for n, a in feed.items()}
    binding = session.io_binding()
    for name, value in bound.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    binding.bind_ortvalue_output("k", bound["x3"])
    binding.bind_ortvalue_output("v", bound["x4"])
    session.run_with_iobinding(binding)
    return [np.array(y.numpy()) for y in binding.get_outputs()]


def int32(given: Any, then: Any = None) -> Input:
    return ints(given, then, "int32")


def sparse(
    length: int,
    totals: tuple[Any, Any],
    *,
    id: str,
    packed: bool = False,
    seen: Array = SEEN,
    **options: Any,
) -> Case:
    batch = len(totals[0])
    new = (
        (rand(batch, length, 128), NONE, NONE)
        if packed
        else (rand(batch, length, 64), rand(batch, length, 32), rand(batch, length, 32))
    )
    cache = rand(batch, 2, CAPACITY, 16)
    longest = int32(*(max(t) for t in totals))
    tables = (COS, SIN) if options.get("do_rotary") else ()
    return case(
        "SparseAttention",
        *(*new, cache, cache, *compressed(seen), longest, int32(*totals), *tables),
        domain=MS,
        id=id,
        outputs=3,
        tolerance=HALF_SUMS,
        reference=_on_cpu,
        **{**HEADS, **options},
    )


CASES = [
    sparse(40, ([40], [40]), id="prompt"),
    sparse(40, ([40], [40]), id="prompt-packed", packed=True, do_rotary=1),
    sparse(1, ([41], [64]), id="decode", do_rotary=1, rotary_interleaved=1),
    sparse(1, ([41, 41], [60, 60]), id="batch", scale=0.4),
    sparse(1, ([41], [50]), id="one-layout", seen=SEEN[1:]),
]

REFUSED = [
    (
        case(
            "SparseAttention",
            *(rand(1, 1, 64), rand(1, 1, 32), NONE, rand(1, 2, 64, 16), rand(1, 2, 64, 16)),
            *(*compressed(SEEN), int32(3), int32([3])),
            domain=MS,
            id="half",
            outputs=3,
            **HEADS,
        ),
        "only one of key and value",
    ),
    (
        case(
            "SparseAttention",
            *(rand(1, 1, 128), NONE, NONE, rand(1, 2, 64, 16), rand(1, 2, 64, 16)),
            *(*compressed(SEEN), int32(3), int32([3])),
            domain=MS,
            id="no-tables",
            outputs=3,
            do_rotary=1,
            **HEADS,
        ),
        "rotary embedding without its tables",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c: Case, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c: Case, sentence: str, ep: Ep) -> None:
    ep.refuse(c, sentence)


def _alone(*given: Array, **attributes: Any) -> list[Array]:
    """Each row of the batch by itself: together, the CPU kernel mixes up the shorter ones."""
    rows = []
    for i, total in enumerate(given[8]):
        one = [a[i : i + 1] if j < 5 and a is not None else a for j, a in enumerate(given)]
        one[7:9] = [np.array(total), given[8][i : i + 1]]
        rows.append(_on_cpu(*one, **attributes))
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def test_rows_of_different_lengths(ep: Ep) -> None:
    c = sparse(1, ([41, 20], [17, 64]), id="ragged", do_rotary=1)
    ep.check(replace(c, reference=_alone))


def test_the_cache_has_room(ep: Ep) -> None:
    ep.fails(sparse(1, ([65], [65]), id="full"), "is not between the 1 new tokens and the cache")


def test_columns_outside_of_the_layout_are_not_seen(ep: Ep) -> None:
    wild = sparse(1, ([41], [41]), id="wild")
    inputs = list(wild.inputs)
    columns = inputs[6].array(0, "int32", 0)
    inputs[6] = const(np.where(columns < 0, 10**6, columns), "int32")
    ep.check(
        replace(
            wild,
            inputs=tuple(inputs),
            reference=lambda *g, **a: _on_cpu(*g[:6], columns, *g[7:], **a),
        )
    )
