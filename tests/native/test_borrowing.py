"""Memory that is borrowed is used to its last byte, and nothing beside it is touched."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from core.graphs import FLOAT, INT64, cpu_session, model, node, tensor
from core.routes import assert_same, compiled

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pages are guarded by mprotect")

PAGE = mmap.PAGESIZE


@contextmanager
def guarded(array: np.ndarray, at_the_end: bool) -> Iterator[np.ndarray]:
    """The array at one end of some pages between two that cannot be read."""
    pages = -(-array.nbytes // PAGE) + 2
    memory = mmap.mmap(-1, pages * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    ends = (start, start + (pages - 1) * PAGE)
    offset = (pages - 1) * PAGE - array.nbytes if at_the_end else PAGE
    made = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    made[...] = array
    for end in ends:
        assert protect(end, PAGE, 0) == 0
    try:
        yield made
    finally:
        for end in ends:
            protect(end, PAGE, mmap.PROT_READ | mmap.PROT_WRITE)


GRAPHS: dict[str, list[Any]] = {
    "itself": [node("Identity", ["x"], ["y"])],
    "transposed": [node("Transpose", ["x"], ["y"])],
    "elementwise": [node("Exp", ["x"], ["e"]), node("Mul", ["e", "x"], ["y"])],
    "softmax": [node("Softmax", ["x"], ["y"])],
    "reduced": [node("ReduceMax", ["x", "one"], ["y"])],
    "product": [node("Transpose", ["x"], ["t"]), node("MatMul", ["x", "t"], ["y"])],
    "gathered": [node("Gather", ["x", "last"], ["y"])],
    "sliced": [node("Slice", ["x", "one", "many", "one"], ["y"])],
    "joined": [node("Concat", ["x", "x"], ["y"], axis=1)],
    "convolved": [
        node("Unsqueeze", ["x", "two"], ["u"]),
        node("Conv", ["u", "w"], ["y"], pads=[1, 1, 1, 1]),
    ],
    "cast": [node("Cast", ["x"], ["y"], to=INT64)],
}


@pytest.mark.parametrize("routes", [(), ("general",)])
@pytest.mark.parametrize("name", GRAPHS)
def test_between_pages_that_cannot_be_read(name: str, routes: tuple[str, ...]) -> None:
    made = model(
        GRAPHS[name],
        [tensor("x", FLOAT, ["a", "b"])],
        [tensor("y", INT64 if name == "cast" else FLOAT)],
        {
            "one": np.array([1]),
            "two": np.array([0, 1]),
            "last": np.array([-1, 0]),
            "many": np.array([1000]),
            "w": np.ones((2, 1, 3, 3), np.float32),
        },
    )
    session, reference = compiled(made, device="cpu", routes=routes), cpu_session(made)
    rng = np.random.default_rng(0)
    for shape in ((32, 32), (3, 7), (1, 1), (5, 1031)):
        x = rng.standard_normal(shape).astype(np.float32)
        wanted = reference.run(None, {"x": x})
        for at_the_end in (False, True):
            with guarded(x, at_the_end) as there:
                assert_same(session.run(None, {"x": there}), wanted, rtol=1e-4)
