"""No operator asks MLX for what its Metal backend refuses, in any form that a GPU claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest

from ops.test_laws import all_cases
from ort_mlx import _native, registry
from ort_mlx.claim import Rules, reasons_against
from ort_mlx.tracing import NotTraceable, tracing
from support.case import Case
from support.metal import refusals
from support.nodes import call, node_of

GPU = Rules(device="gpu")


def arrays_in(result: Any) -> list[mx.array]:
    made = result if isinstance(result, (tuple, list)) else (result,)
    return [a for a in made if isinstance(a, mx.array)]


def asked_of_mlx(run: Callable[..., Any], inputs: list[mx.array]) -> list[Any]:
    """The primitives of a function of arrays."""
    placeholders = [_native.placeholder(a) for a in inputs]
    try:
        with tracing():
            outputs = arrays_in(run(*placeholders))
    except NotTraceable:  # it reads values: then what comes after the last one read is seen
        placeholders = inputs
        outputs = arrays_in(run(*inputs))
    if any(a.dtype == mx.float64 for a in outputs):
        return []  # a GPU session declines it for the type of its output, which a case does not say
    return _native.sample(placeholders, outputs).nodes


def variants(c: Case) -> Iterator[tuple[int, str]]:
    """Those that a session on a GPU claims."""
    for version, dtype in c.variants():
        if not reasons_against(node_of(c, version, dtype), GPU):
            yield version, dtype


@pytest.fixture(scope="module")
def cases() -> dict[tuple[str, str], list[Case]]:
    found: dict[tuple[str, str], list[Case]] = {}
    for c in all_cases()[0]:
        found.setdefault((c.domain, c.op_type), []).append(c)
    return found


# Bodies are of other operators.
OPS = {(o.domain, o.name) for o in registry.all_ops()} - {("", n) for n in ("If", "Loop", "Scan")}


@pytest.mark.parametrize(("domain", "name"), sorted(OPS))
def test_nothing_is_asked_that_metal_refuses(
    domain: str, name: str, cases: dict[tuple[str, str], list[Case]]
) -> None:
    found = set()
    for c in cases.get((domain, name), []):
        for version, dtype in variants(c):
            run, (inputs, _) = call(c, version, dtype)
            found |= {f"{c}: {r}" for r in refusals(asked_of_mlx(run, inputs))}
    assert not found


def test_nearly_every_case_is_looked_at(cases: dict[tuple[str, str], list[Case]]) -> None:
    """Or the test above would hold for want of anything to look at."""
    claimed = [bool(list(variants(c))) for found in cases.values() for c in found]
    assert sum(claimed) > 0.9 * len(claimed)


ON_THE_CPU_ONLY: dict[str, tuple[Callable[..., Any], mx.Dtype]] = {
    "ArgSort of mlx.core.bool: no kernel": (mx.argsort, mx.bool_),
    "Scatter Sum of mlx.core.int64, mlx.core.int32, mlx.core.int64: no kernel": (
        lambda x: x.at[mx.array([1, 0])].add(x),
        mx.int64,
    ),
    "Inverse of mlx.core.float32": (lambda x: mx.linalg.inv(x, stream=mx.cpu), mx.float32),
    "Greater of mlx.core.float64, mlx.core.float64: there is no float64": (
        lambda x: x > 0,
        mx.float64,
    ),
    "FFT of mlx.core.complex64: too long": (
        lambda x: mx.fft.fft(mx.broadcast_to(x[0, 0], (2**23 + 1,))),
        mx.float32,
    ),
    "CumSum of mlx.core.float32: an empty grid": (
        lambda x: mx.cumsum(x[:0], axis=1),
        mx.float32,
    ),
    "Hadamard of mlx.core.float32: not in the table": (mx.hadamard_transform, mx.float32),
}


@pytest.mark.parametrize("text", ON_THE_CPU_ONLY)
def test_the_table_refuses(text: str) -> None:
    f, dtype = ON_THE_CPU_ONLY[text]
    with mx.stream(mx.cpu):
        made = refusals(asked_of_mlx(f, [mx.ones((2, 2), dtype)]))
    assert any(text in reason for reason in made), made


def test_the_table_refuses_groups() -> None:
    x, made = (mx.float32, (1, 64)), (mx.float32, (1, 2))
    for group, reason in ((32, None), (16, "no kernel for 4 bits in groups of 16")):
        weight, scales = (mx.uint32, (2, 8)), (mx.float32, (2, 64 // group))
        found = refusals([("QuantizedMatmul", [x, weight, scales, scales], [made])])
        assert [f.endswith(str(reason)) for f in found] == ([True] if reason else [])
