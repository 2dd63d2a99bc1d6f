"""Which route a Run takes: found in its data flow, reported, and switched off one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import ort_mlx
from core.graphs import FLOAT, INT64, cpu_session, model, node, tensor
from core.routes import assert_same, compiled, counts, run

MS = "com.microsoft"
HEADS, SIZE, CAPACITY = 2, 8, 32
ROUTES = ("general", "prefill", "decode")
PROMPT, STEPS = 5, 12

Made = tuple[bytes, Callable[[int, int], dict[str, np.ndarray]]]


def ramp(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def joined() -> Made:
    """Attention in plain ops over a cache that a Concat makes longer."""
    made = model(
        [
            node("Concat", ["past", "x"], ["present"], axis=2),
            node("Transpose", ["present"], ["turned"], perm=[0, 1, 3, 2]),
            node("MatMul", ["x", "turned"], ["scores"]),
            node("Softmax", ["scores"], ["weights"], axis=-1),
            node("MatMul", ["weights", "present"], ["y"]),
        ],
        [tensor("x", FLOAT, [1, HEADS, "q", SIZE]), tensor("past", FLOAT, [1, HEADS, "p", SIZE])],
        [tensor("y"), tensor("present")],
    )
    return made, lambda q, p: {"x": ramp(1, HEADS, q, SIZE), "past": ramp(1, HEADS, p, SIZE)}


def attention(op: str) -> Made:
    """An attention op that appends to its past."""
    kv = [1, HEADS, "p", SIZE]
    by_op: dict[str, tuple[list[str], dict[str, Any]]] = {
        "Attention": (["", "pk", "pv"], {"q_num_heads": HEADS, "kv_num_heads": HEADS}),
        "MultiHeadAttention": (["", "", "", "pk", "pv"], {"num_heads": HEADS, "domain": MS}),
    }
    rest, attributes = by_op[op]
    made = model(
        [node(op, ["q", "k", "v", *rest], ["y", "present_k", "present_v"], **attributes)],
        [
            *(tensor(n, FLOAT, [1, "q", HEADS * SIZE]) for n in "qkv"),
            *(tensor(n, FLOAT, kv) for n in ("pk", "pv")),
        ],
        [tensor("y"), tensor("present_k"), tensor("present_v")],
        opset=23,
        domains=[MS],
    )

    def feed(q: int, p: int) -> dict[str, np.ndarray]:
        new = {n: ramp(1, q, HEADS * SIZE) * i for i, n in enumerate("qkv", 1)}
        return new | {n: ramp(1, HEADS, p, SIZE) for n in ("pk", "pv")}

    return made, feed


def shared() -> Made:
    """GroupQueryAttention over a buffer of one size, which new rows are written into."""
    kv = [1, HEADS, CAPACITY, SIZE]
    made = model(
        [
            node(
                "GroupQueryAttention",
                ["q", "k", "v", "pk", "pv", "last", "total"],
                ["y", "present_k", "present_v"],
                domain=MS,
                num_heads=HEADS,
                kv_num_heads=HEADS,
            )
        ],
        [
            *(tensor(n, FLOAT, [1, "q", HEADS * SIZE]) for n in "qkv"),
            *(tensor(n, FLOAT, kv) for n in ("pk", "pv")),
            tensor("last", TensorProto.INT32, [1]),
            tensor("total", TensorProto.INT32, [1]),
        ],
        [tensor("y"), tensor("present_k"), tensor("present_v")],
        domains=[MS],
    )

    def feed(q: int, p: int) -> dict[str, np.ndarray]:
        new = {n: ramp(1, q, HEADS * SIZE) * i for i, n in enumerate("qkv", 1)}
        used = (np.arange(CAPACITY) < p)[:, None].astype(np.float32)
        new |= {n: ramp(1, HEADS, CAPACITY, SIZE) * used for n in ("pk", "pv")}
        total = np.array([p + q], np.int32)
        return new | {"last": total - 1, "total": total}

    return made, feed


DECODERS = {
    "joined": joined,
    "Attention": lambda: attention("Attention"),
    "MultiHeadAttention": lambda: attention("MultiHeadAttention"),
    "shared": shared,
}


def answers(made: Made, session: Any, prompts: Iterable[int] = (PROMPT,)) -> None:
    """A prompt on an empty cache, then steps of one token; results are ORT CPU's."""
    source, feed = made
    reference = cpu_session(source)
    for prompt in prompts:
        for q, p in [(prompt, 0), *((1, prompt + i) for i in range(STEPS))]:
            now = feed(q, p)
            assert_same(run(session, now), run(reference, now), rtol=1e-4)


def runs(session: Any) -> dict[str, int]:
    return {name: counts(session)[f"{name}_runs"] for name in (*ROUTES, "eager")}


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_prefills_and_decodes(name: str) -> None:
    made = DECODERS[name]()
    session = compiled(made[0])
    answers(made, session)
    assert runs(session) == {"general": 0, "prefill": 1, "decode": STEPS, "eager": 0}
    assert "1 prefill runs, 12 decode runs" in str(ort_mlx.report(session))


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("off", ROUTES)
def test_a_route_that_is_off(name: str, off: str) -> None:
    made = DECODERS[name]()
    session = compiled(made[0], routes=[r for r in ROUTES if r != off])
    answers(made, session)
    wanted = {"general": 0, "prefill": 1, "decode": STEPS, "eager": 0}
    if off == "prefill":
        wanted |= {"prefill": 0, "eager": 1}
        assert "the route prefill is off" in str(ort_mlx.report(session))
    elif off == "decode":
        wanted |= {"general": STEPS, "decode": 0}
    assert runs(session) == wanted


def test_prompts_at_equal_distances_stay_prefills() -> None:
    made = joined()
    session = compiled(made[0])
    answers(made, session, prompts=range(3, 9))
    assert runs(session) == {"general": 0, "prefill": 6, "decode": 6 * STEPS, "eager": 0}


def test_a_graph_without_a_cache_is_general() -> None:
    made = model([node("Neg", ["x"], ["y"])], [tensor("x", FLOAT, ["n", 3])], [tensor("y")])
    session = compiled(made)
    for n in (1, 4, 2, 9):
        run(session, {"x": ramp(n, 3)})
    assert runs(session) == {"general": 4, "prefill": 0, "decode": 0, "eager": 0}
    without = compiled(made, routes=["prefill", "decode"])
    for n in (1, 4, 2, 9, 9):
        np.testing.assert_array_equal(run(without, {"x": ramp(n, 3)})[0], -ramp(n, 3))
    assert runs(without) == {"general": 0, "prefill": 0, "decode": 0, "eager": 5}


def test_stretches_belong_to_general() -> None:
    """A plan that no closure can serve whole is compiled in parts, unless general is off."""
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Abs", ["a"], ["b"]),
        node("NonZero", ["b"], ["y"]),
    ]
    made = model(nodes, [tensor("x", FLOAT, ["n"])], [tensor("y", INT64)])
    for routes, traces in ((ROUTES, 1), (("decode",), 0)):
        session = compiled(made, routes=routes)
        np.testing.assert_array_equal(run(session, {"x": ramp(4)})[0], [[0, 1, 2, 3]])
        assert counts(session)["traces"] == traces
        assert runs(session)["eager"] == 1
