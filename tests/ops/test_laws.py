"""What holds for every translated operator: signature, types, safety, and that it is tested.

A schema version that we do not list is printed, not failed.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ort_mlx import registry
from ort_mlx.registry import OpDef
from ort_mlx.safety import SHAPELESS
from support import schemas
from support.case import ROUNDS, Case, Dim
from support.disputes import DISPUTES, Dispute
from support.nodes import call, node_of, safety_of
from support.references import answers, assert_close, comparable

OPS = registry.all_ops()
VERSIONED = [(o, v) for o in OPS for v in o.since]


@cache
def all_cases() -> tuple[list[Case], list[tuple[Case, str]]]:
    """Every case and every refused case of the files next to this one."""
    cases, refused = [], []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.stem != Path(__file__).stem:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            cases += getattr(module, "CASES", [])
            refused += getattr(module, "REFUSED", [])
    return cases, refused


def schema_of(o: OpDef, version: int) -> schemas.Schema:
    found = schemas.all_schemas().get((o.domain, o.name, version))
    assert found is not None, f"no schema of {o} has version {version}"
    return found


def named(o: Any) -> str:
    return f"{o}-{o.since[0]}" if isinstance(o, OpDef) else str(o)


@pytest.mark.parametrize(("o", "version"), VERSIONED, ids=named)
def test_inputs_are_those_of_the_schema(o: OpDef, version: int) -> None:
    schema = schema_of(o, version)
    assert len(schema.inputs) == len(o.params)
    for formal, param in zip(schema.inputs, o.params, strict=True):
        assert param.variadic == (formal.option == "Variadic"), param.name
        if formal.option == "Single":
            assert param.required or param.is_prepared, param.name
        elif param.required:  # we want it where the schema does not
            said = {sentence for _, sentence in all_cases()[1]}
            assert f"input '{param.name}' is missing" in said, param.name


@pytest.mark.parametrize(("o", "version"), VERSIONED, ids=named)
def test_attributes_are_those_of_the_schema(o: OpDef, version: int) -> None:
    declared = schema_of(o, version).attributes
    read = dict(o.attributes)
    missing = declared.keys() - read.keys() - o.fixed.keys()
    assert not missing, f"neither read nor fixed: {sorted(missing)}"
    extra = (read.keys() | o.fixed.keys()) - declared.keys()
    # A translation may serve versions before and after an attribute was added.
    known = {a for v in o.since for a in schema_of(o, v).attributes}
    assert extra <= known, f"not in any of its schemas: {sorted(extra - known)}"
    for name, default in read.items():
        if name in declared:
            assert _same(default, declared[name]), f"{name}: {default!r}, not {declared[name]!r}"


@pytest.mark.parametrize("o", OPS, ids=named)
def test_types_are_of_parameters_and_in_the_schema(o: OpDef) -> None:
    names = [p.name for p in o.params]
    prepared = {n for key in o.prepare for n in (key if isinstance(key, tuple) else (key,))}
    assert set(o.types) | prepared <= set(names)
    for index, name in enumerate(names):
        if name in o.types:
            allowed = frozenset().union(*(schema_of(o, v).input_types(index) for v in o.since))
            assert o.types[name] & allowed, f"no version takes any of {name}'s types"


@pytest.mark.parametrize("o", OPS, ids=named)
def test_every_reachable_version_has_a_case(o: OpDef) -> None:
    reachable = {v for v in o.since if schemas.opset_of(o.domain, o.name, v) is not None}
    assert reachable, "no model of opset 7 or newer has one of its versions"
    tried = {v for c in cases_of(o) for v, _ in c.variants()}
    assert tried >= reachable, f"no case for versions {sorted(reachable - tried)}"


@pytest.mark.parametrize("o", [o for o in OPS if o.claim], ids=named)
def test_every_reason_has_a_refused_case(o: OpDef) -> None:
    assert o.claim is not None
    said = [sentence for _, sentence in all_cases()[1]]
    for pattern in _sentences(o.claim):
        assert any(re.fullmatch(pattern, s) for s in said), f"no refused case says: {pattern}"


@pytest.mark.parametrize("o", [o for o in OPS if o.safety is SHAPELESS], ids=named)
def test_shapeless_ops_are_right_for_any_shape(o: OpDef) -> None:
    """Compiled for the shapes of the first round, and called with those of the second.

    Cases with empty arrays are left out: MLX itself keeps the shapes of the trace for those.
    """
    every = False
    for c in cases_of(o):
        version, dtype = next(iter(c.variants()))
        if safety_of(c) is not SHAPELESS:
            continue
        run, (first, second) = call(c, version, dtype)
        if not all(a.size for a in (*first, *second)):
            continue
        changed = all(
            isinstance(d, Dim) or d == 1
            for x, p in zip(c.inputs, map(o.param, range(len(c.inputs))), strict=True)
            if x.make is not None and p is not None and p.host is None
            for d in x.shape
        )
        every = every or (changed and any(a.ndim for a in first))
        compiled = mx.compile(run, shapeless=True)
        compiled(*first)
        for got, want in zip(as_tuple(compiled(*second)), as_tuple(run(*second)), strict=True):
            assert got.shape == want.shape, str(c)
            np.testing.assert_allclose(as_numpy(got), as_numpy(want), 1e-4, 1e-5, err_msg=str(c))
    assert every, "no case changes every dimension"


@pytest.mark.parametrize("o", [o for o in OPS if o.less_safe], ids=named)
def test_every_lower_safety_has_a_case(o: OpDef) -> None:
    assert o.less_safe is not None
    nodes = [node_of(c, *next(iter(c.variants()))) for c in cases_of(o)]
    found = [list(o.less_safe(node)) for node in nodes]
    assert all(safety < o.safety for reasons in found for safety, _ in reasons)
    assert any(not reasons for reasons in found), "no case has the declared safety"
    said = [reason for reasons in found for _, reason in reasons]
    for pattern in _sentences(o.less_safe):
        assert any(re.fullmatch(pattern, s) for s in said), f"no case has: {pattern}"


@pytest.mark.parametrize("d", DISPUTES, ids=lambda d: f"{d.op_type}{d.part}")
def test_disputes_are_real(d: Dispute) -> None:
    """In some case, what the other reference says differs."""
    for c in all_cases()[0]:
        for version, dtype in c.variants() if d.covers(c, d.dtypes[0] if d.dtypes else "") else ():
            if d.covers(c, dtype) and any(_disagree(c, version, dtype, turn) for turn in ROUNDS):
                return
    pytest.fail("no case has the references disagree")


def _disagree(c: Case, version: int, dtype: str, turn: int) -> bool:
    found = [comparable(outputs, c) for outputs in answers(c, version, dtype, turn).values()]
    try:
        for other in found[1:]:
            for g, w in zip(other, found[0], strict=True):
                assert_close(w, g, c, dtype, exact_dtype=False)
    except AssertionError:
        return True
    return False


def test_versions_that_are_not_translated(capsys: pytest.CaptureFixture[str]) -> None:
    known = {(o.domain, o.name) for o in OPS}
    for domain, name in sorted(known):
        newest = max(registry.versions(domain, name))
        newer = [v for v in schemas.versions(domain, name) if v > newest]
        if newer:
            with capsys.disabled():
                print(f"\n{domain or 'ai.onnx'}::{name} has versions {newer} too")


def cases_of(o: OpDef) -> Iterator[Case]:
    return (
        c for c in all_cases()[0] if (c.domain, c.op_type) == (o.domain, o.name) and c.opdef is o
    )


def _same(ours: Any, theirs: Any) -> bool:
    if ours is inspect.Parameter.empty or theirs is schemas.REQUIRED:
        return ours is theirs
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-6) or (math.isnan(ours) and math.isnan(theirs))
    return bool(ours == theirs)


def _sentences(claim: Callable[..., Any], seen: frozenset[Any] = frozenset()) -> set[str]:
    """The sentences that a claim can yield, itself or through others, as regular expressions."""
    if claim in seen:
        return set()
    tree = ast.parse(textwrap.dedent(inspect.getsource(claim)))
    scope = {**claim.__globals__, **inspect.getclosurevars(claim).nonlocals}
    found = set()
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Yield) and inner.value is not None:
            found.add(_pattern(inner.value))
        if isinstance(inner, ast.YieldFrom) and isinstance(inner.value, ast.Call):
            called = scope.get(getattr(inner.value.func, "id", ""))
            if callable(called):
                found |= _sentences(called, seen | {claim})
    return found


def _pattern(value: ast.expr) -> str:
    if isinstance(value, ast.Tuple):  # with a safety before it
        value = value.elts[-1]
    if isinstance(value, ast.Constant):
        return re.escape(str(value.value))
    assert isinstance(value, ast.JoinedStr), "a reason is a literal or an f-string"
    return "".join(
        re.escape(v.value) if isinstance(v, ast.Constant) else ".+" for v in value.values
    )


def as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def as_numpy(a: mx.array) -> Any:
    return np.array(a.astype(mx.float32) if a.dtype == mx.bfloat16 else a).astype(np.float64)
