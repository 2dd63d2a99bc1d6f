"""Outputs computed in the memory of the caller: no copy where that is safe, no error elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import onnxruntime as ort
import pytest

from core.graphs import FLOAT, INT64, model, node, tensor
from core.routes import compiled, counts
from core.test_progressions import group_query, group_query_feed
from ort_mlx import _native
from support.closures import floats, same

Arrays = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    with mx.stream(mx.cpu):
        yield


def run_bound(session: Any, feed: Arrays, bound: Arrays) -> dict[str, np.ndarray]:
    """One Run whose outputs are in `bound`, or where ORT puts them."""
    binding = session.io_binding()
    for name, value in feed.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value))
    for output in session.get_outputs():
        if output.name in bound:
            value = ort.OrtValue.ortvalue_from_numpy(bound[output.name])
            binding.bind_ortvalue_output(output.name, value)
        else:
            binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, (v.numpy() for v in binding.get_outputs()), strict=True))


def copied() -> int:
    counters = _native.counters()
    return int(counters["bytes_copied_in"] + counters["bytes_copied_out"])


def test_a_shared_cache_is_written_in_place() -> None:
    capacity = 4096
    made = group_query(capacity)
    session, reference = compiled(made, device="cpu"), compiled(made, device="cpu", routes=())
    feed = group_query_feed(1, capacity)
    wanted = {name: feed[name].copy() for name in ("past_k", "past_v")}
    for past in range(1, 12):
        feed["mask"] = np.ones((1, past + 1), np.int64)
        feed["k"] = feed["k"] + 1
        before = copied()
        got = run_bound(session, feed, {"present_k": feed["past_k"], "present_v": feed["past_v"]})
        assert copied() - before < 4096
        expected = dict(
            zip(
                ("y", "present_k", "present_v"),
                reference.run(None, {**feed, **wanted}),
                strict=True,
            )
        )
        wanted = {"past_k": expected["present_k"], "past_v": expected["present_v"]}
        np.testing.assert_allclose(got["y"], expected["y"], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(feed["past_k"], expected["present_k"])
        np.testing.assert_array_equal(feed["past_v"], expected["present_v"])
    assert counts(session)["failures"] == counts(session)["eager_runs"] == 0


def test_a_growing_cache_is_copied_once() -> None:
    made = model(
        [node("Concat", ["past", "x"], ["present"], axis=1)],
        [tensor("past", FLOAT, ["b", "p", 8]), tensor("x", FLOAT, ["b", 1, 8])],
        [tensor("present")],
    )
    session = compiled(made, device="cpu")
    past = np.zeros((1, 0, 8), np.float32)
    for step in range(20):
        x = np.full((1, 1, 8), step, np.float32)
        before = copied()
        past = session.run(None, {"past": past, "x": x})[0]
        assert copied() == before  # written where ORT wants it
    np.testing.assert_array_equal(past[0, :, 0], np.arange(20))


# Outputs bound to memory that an input lies in: what is read later must not be overwritten.
OVERLAPS = {
    "read-by-all": [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("Sub", ["x", "t"], ["y"]),
    ],
    "written": [node("TensorScatter", ["x", "new", "at"], ["y"])],
    "read-later": [
        node("TensorScatter", ["x", "new", "at"], ["y"]),
        node("MatMul", ["y", "x"], ["z"]),
    ],
    "a-view-is-read-later": [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("TensorScatter", ["x", "new", "at"], ["y"]),
        node("MatMul", ["y", "t"], ["z"]),
    ],
    "written-twice": [
        node("TensorScatter", ["x", "new", "at"], ["once"]),
        node("TensorScatter", ["once", "new", "zero"], ["y"]),
        node("MatMul", ["once", "y"], ["z"]),
    ],
}


@pytest.mark.parametrize("shift", [0, 1, 5])
@pytest.mark.parametrize("name", OVERLAPS)
def test_an_output_over_an_input(name: str, shift: int) -> None:
    outputs = ["y", "z"] if "z" in OVERLAPS[name][-1].output else ["y"]
    made = model(
        OVERLAPS[name],
        [tensor("x", FLOAT, [1, 6, 6]), tensor("new", FLOAT, [1, 2, 6]), tensor("at", INT64, [1])],
        [tensor(output) for output in outputs],
        {"zero": np.array([0])},
        opset=24,
    )
    session = compiled(made, device="cpu")
    rng = np.random.default_rng(0)
    new = rng.standard_normal((1, 2, 6)).astype(np.float32)
    for at in range(4):
        memory = rng.standard_normal(6 * 6 + 8).astype(np.float32)
        feed = {"x": memory[:36].reshape(1, 6, 6), "new": new, "at": np.array([at])}
        wanted = session.run(None, {key: value.copy() for key, value in feed.items()})
        got = run_bound(session, feed, {"y": memory[shift : shift + 36].reshape(1, 6, 6)})
        for output, value in zip(outputs, wanted, strict=True):
            np.testing.assert_allclose(got[output], value, rtol=1e-6)
    assert counts(session)["failures"] == counts(session)["eager_runs"] == 0


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.int8, mx.int64])
def test_a_block_is_written(axis: int, dtype: mx.Dtype) -> None:
    sizes = [2, 7, 9]
    whole = floats(tuple(sizes)).astype(dtype)
    sizes[axis] = 1
    block = floats(tuple(sizes), 1).astype(dtype)
    sizes[axis] = 3
    block = mx.broadcast_to(block, sizes)
    for at in (0, 2, 4):
        start = mx.array([at])
        same(lambda w, b, s: mx.slice_update(w, b, s, (axis,)), whole, block, start)
        same(lambda w, b, s: mx.slice_update(w * 2, b, s, (axis,)), whole, block, start)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.int8, mx.int64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_are_written(axis: int, dtype: mx.Dtype) -> None:
    whole = floats((4, 5, 6)).astype(dtype)
    places = mx.argsort(floats((4, 5, 6), 2), axis=axis)
    places = mx.take(places, mx.array([0, 2]), axis=axis) - whole.shape[axis] * mx.array(
        [0, 1]
    ).reshape([2 if i == axis else 1 for i in range(3)])
    elements = floats(tuple(places.shape), 3).astype(dtype)
    same(lambda w, p, e: mx.put_along_axis(w, p, e, axis=axis), whole, places, elements)
    same(lambda w, p, e: mx.put_along_axis(w.T, p.T, e.T, axis=2 - axis), whole, places, elements)
    nothing = mx.zeros(tuple(0 if i == axis else n for i, n in enumerate(whole.shape)))
    same(
        lambda w, p, e: mx.put_along_axis(w, p, e, axis=axis),
        whole, nothing.astype(mx.int32), nothing.astype(dtype),
    )  # fmt: skip


def test_lengths_beyond_the_cache_do_not_write_beyond_it() -> None:
    made = group_query(8)
    session = compiled(made, device="cpu")
    feed = group_query_feed(1, 8)
    feed["mask"] = np.full((1, 3), 1000)  # its sum says where to write
    for _ in range(3):
        for value in session.run(None, feed):
            assert np.isfinite(value).all()
