"""What ops say of padded axes is true: run with more positions, the real ones stay as they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ops.test_laws import as_numpy, as_tuple, cases_of, named
from ort_mlx import registry
from ort_mlx.claim import bind
from ort_mlx.ops._padding import elementwise
from ort_mlx.padding import SIZE, Axes, Mixes
from ort_mlx.registry import OpDef
from support.case import Case
from support.nodes import node_of, to_mlx

DECLARING = [o for o in registry.all_ops() if o.padding is not None]


def padded(x: mx.array, axis: int) -> mx.array:
    """Twice the positions along the axis: the real ones, in reverse and with floats changed."""
    more = x[tuple(slice(None, None, -1) if i == axis else slice(None) for i in range(x.ndim))]
    if mx.issubdtype(x.dtype, mx.floating):
        more = (more * 1.5 + 0.25).astype(x.dtype)
    return mx.concatenate([x, more], axis=axis)


def cropped(x: mx.array, axis: int, size: int) -> mx.array:
    return x[tuple(slice(size) if i == axis else slice(None) for i in range(x.ndim))]


def enlarged(x: np.ndarray, carried: Any) -> np.ndarray:
    """An input as it is when the size is twice what it was."""
    if carried is None:
        return x
    if isinstance(carried, int):
        return np.array(padded(to_mlx(x), carried)).astype(x.dtype)
    twice = [v * 2 if c is SIZE else v for v, c in zip(x.reshape(-1), carried, strict=True)]
    return np.array(twice, x.dtype).reshape(x.shape)


def choices(c: Case, o: OpDef, arrays: Sequence[Any]) -> Iterator[tuple[Axes, int]]:
    """Every way to pad some inputs along one axis, or to have the size in them, and the size."""
    options: list[list[tuple[Any, int]]] = []
    for i, (x, a) in enumerate(zip(c.inputs, arrays, strict=True)):
        param = o.param(i)
        options.append([(None, 0)])
        if a is None or param is None or (x.constant and param.host is None) or param.is_prepared:
            continue
        if param.host is None:
            options[-1] += [(axis, size) for axis, size in enumerate(a.shape)]
        if a.ndim <= 1 and a.dtype.kind == "i":
            whole = a.reshape(-1).tolist()
            options[-1] += [
                ((*whole[:k], SIZE, *whole[k + 1 :]), n) for k, n in enumerate(whole) if n > 0
            ]
    for chosen in itertools.product(*options):
        sizes = {size for carried, size in chosen if carried is not None}
        if len(sizes) == 1 and min(sizes) >= 2:
            yield tuple(carried for carried, _ in chosen), sizes.pop()


def hold(c: Case, o: OpDef) -> int:
    """Check each declaration that the case can be padded by; how many there were."""
    assert o.padding is not None
    version, dtype = next(iter(c.variants()))
    arrays = c.arrays(dtype, 0)
    made, _ = bind(node_of(c, version, dtype))
    values = zip(made.inputs, arrays, strict=True)
    shown = (replace(v, shape=a.shape) if v and a is not None else v for v, a in values)
    node = replace(made, inputs=tuple(shown))
    tried = 0
    for axes, size in choices(c, o, arrays):
        try:
            carried = o.padding(node, axes)
        except Mixes:
            continue
        if carried is None or (isinstance(carried, tuple) and SIZE not in carried):
            continue
        more = [a if a is None else enlarged(a, x) for a, x in zip(arrays, axes, strict=True)]
        wanted, got = called(o, node, arrays), called(o, node, more)
        for before, after, is_kept in zip(wanted, got, c.outputs, strict=False):
            if is_kept:
                compare(before, after, carried, size, f"{c}, {axes} to {carried}")
        tried += 1
    return tried


def called(o: OpDef, node: Any, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of the op function."""
    values = []
    for i, a in enumerate(arrays):
        param = o.param(i)
        assert param is not None
        if a is None or param.host is not None:
            values.append(a if a is None or param.host is None else param.host.convert(a))
        else:
            values.append(to_mlx(a) if param.prepare is None else param.prepare(to_mlx(a)))
    keywords = {k: v for k, v in node.attributes.items() if k in o.attributes}
    return as_tuple(o.fn(*values, **keywords, **({"node": node} if o.wants_node else {})))


def compare(before: Any, after: Any, carried: Any, size: int, about: str) -> None:
    if isinstance(carried, tuple):
        was = np.array(before).reshape(-1)
        wanted = [v * 2 if c is SIZE else v for v, c in zip(was, carried, strict=True)]
        np.testing.assert_array_equal(np.array(after).reshape(-1), wanted, about)
        known = [(v, c) for v, c in zip(was, carried, strict=True) if isinstance(c, int)]
        assert all(v == c for v, c in known), about
        return
    assert after.shape[carried] == 2 * size, about
    real = cropped(after, carried, size)
    assert real.shape == before.shape, about
    np.testing.assert_allclose(as_numpy(real), as_numpy(before), 1e-4, 1e-5, err_msg=about)


@pytest.mark.parametrize("o", DECLARING, ids=named)
def test_declarations_hold(o: OpDef) -> None:
    tried = sum(hold(c, o) for c in cases_of(o) if 0 not in _sizes(c))
    assert tried, "no case can be padded"


def _sizes(c: Case) -> list[int]:
    return [d for x in c.inputs if x.make is not None for d in x.sizes(0)]


def test_a_wrong_declaration_is_found() -> None:
    softmax = registry.find("", "Softmax", 13)
    assert softmax is not None
    wrong = replace(softmax, padding=elementwise)
    with pytest.raises(AssertionError):
        sum(hold(c, wrong) for c in cases_of(softmax))
