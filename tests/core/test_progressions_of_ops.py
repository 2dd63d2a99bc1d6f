"""Every operator along a progression: one dimension of a case grows, each step is as eagerly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ort_mlx
from ops.test_laws import all_cases, named
from ort_mlx import registry
from ort_mlx.registry import OpDef
from support.case import Case, Dim, Input
from support.placement import mlx_session
from support.references import assert_close, comparable, feed_of

STEPS = range(3, 16)
CASES_EACH = 2


def growing(c: Case) -> Iterator[str]:
    """The dimensions of a case that can have any size."""
    seen = set()
    for x in c.inputs:
        if x.make is not None and x.then is None and not x.constant:
            seen |= {d.name for d in x.shape if isinstance(d, Dim)}
    fixed = {
        d.name
        for x in c.inputs
        if x.then is not None or x.constant
        for d in x.shape
        if isinstance(d, Dim)
    }
    yield from sorted(seen - fixed)


def at(c: Case, name: str, size: int) -> Case:
    """The case with a dimension of this size."""

    def sized(x: Input) -> Input:
        dims = tuple(
            Dim(d.name, (size, size)) if isinstance(d, Dim) and d.name == name else d
            for d in x.shape
        )
        return replace(x, shape=dims)

    return replace(c, inputs=tuple(sized(x) for x in c.inputs))


def chosen(o: OpDef) -> list[tuple[Case, str]]:
    mine = [
        (c, name)
        for c in all_cases()[0]
        if (c.domain, c.op_type) == (o.domain, o.name) and c.opdef is o and c.holds is None
        for name in growing(c)
    ]
    # One case for each dimension first, then others.
    first = {name: (c, name) for c, name in reversed(mine)}
    others = [pair for pair in mine if pair not in first.values()]
    return [*first.values(), *others][:CASES_EACH]


TRIED = [o for o in registry.all_ops() if o.deterministic and o.name != "Constant" and chosen(o)]


@pytest.mark.parametrize("o", TRIED, ids=named)
def test_each_step_is_as_eagerly(o: OpDef) -> None:
    for c, name in chosen(o):
        version, dtype = next(iter(c.variants()))
        made = c.model(c.arrays(dtype, 0), version)
        compiled, eager = mlx_session(made), mlx_session(made, routes=())
        for step in STEPS:
            sized = at(c, name, step)
            feed = feed_of(sized.arrays(dtype, 0), sized)
            try:
                wanted = eager.run(None, feed)
            except Exception as error:  # this size does not fit the case's other inputs
                with pytest.raises(type(error)):
                    compiled.run(None, feed)
                continue
            got = compiled.run(None, feed)
            for g, w in zip(_defined(got, c), _defined(wanted, c), strict=True):
                try:
                    assert_close(g, w, c, dtype)
                except AssertionError as error:
                    raise AssertionError(f"{c}, {name} = {step}: {error}") from None
        report = ort_mlx.report(compiled)
        assert report.counts["failures"] == 0, str(report)


def _defined(outputs: list[Any], c: Case) -> list[np.ndarray]:
    return comparable(outputs, c)
