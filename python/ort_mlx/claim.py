"""Whether a node can be translated: every reason against it, in sentences; none means claimed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from inspect import Parameter

import numpy as np

from . import registry
from ._native import EP_NAME
from .dtypes import MLX_DTYPES
from .node import Graph, Node, Value
from .registry import Claim, OpDef


@dataclass(frozen=True)
class Rules:
    """What a session adds to the rules of the ops themselves."""

    device: str = "cpu"
    excluded_ops: frozenset[str] = frozenset()
    # Whether ORT hands a fused node what its bodies read from outside; it does from 1.27 on.
    passes_captured: bool = True


def bind(node: Node) -> tuple[Node, OpDef | None]:
    """The node with its inputs named after the op's parameters, and its translation."""
    opdef = registry.find(node.domain, node.op_type, node.since_version)
    if opdef is None:
        return node, None
    return replace(node, param_names=tuple(p.name for p in opdef.params)), opdef


def reasons_against(node: Node, rules: Rules) -> tuple[str, ...]:
    """Each reason to leave the node to another provider; empty when it is claimed."""
    return tuple(_reasons(node, rules))


def _reasons(node: Node, rules: Rules) -> Iterator[str]:
    node, opdef = bind(node)
    if node.op_type in rules.excluded_ops:
        yield "excluded by the option exclude_ops"
        return
    if opdef is None:
        yield _unknown(node)
        return
    structural = [
        *_inputs(node, opdef),
        *_attributes(node, opdef),
        *_tensors(node.inputs + node.outputs, rules),
    ]
    yield from structural
    if not structural and opdef.claim is not None:  # claims may rely on what was checked above
        yield from _own_reasons(opdef.claim, node)
    for name, body in node.bodies.items():
        for reason in reasons_against_body(body, replace(rules, passes_captured=True)):
            yield f"in {name}: {reason}"
    if not rules.passes_captured and (names := _captured_values(node)):
        yield f"ONNX Runtime before 1.27 does not pass on {_listed(names)}, read in a body"


def _own_reasons(claim: Claim, node: Node) -> Iterator[str]:
    try:
        yield from claim(node)
    except Exception as error:  # a mistake of ours must not cost the model its other nodes
        yield f"its claim failed with {type(error).__name__}: {error}; please report this"


def reasons_against_body(body: Graph, rules: Rules) -> Iterator[str]:
    """The reasons of every node of a body, each with the node's name, and of its own values."""
    yield from _tensors(body.inputs + body.outputs, rules)
    for node in body.nodes:
        for reason in reasons_against(node, rules):
            yield f"{node}: {reason}"


def _captured_values(node: Node) -> list[str]:
    """What the bodies read from outside that is neither a constant nor an input of the node."""
    own = {v.name for v in node.inputs if v is not None}
    found = {v.name: v for body in node.bodies.values() for v in _read_outside(body)}
    return [f"'{v.name}'" for v in found.values() if v.constant is None and v.name not in own]


def _read_outside(body: Graph) -> Iterator[Value]:
    made = {v.name for v in body.inputs}
    for node in body.nodes:
        inner = [v for b in node.bodies.values() for v in _read_outside(b)]
        yield from (v for v in (*node.inputs, *inner) if v is not None and v.name not in made)
        made |= {v.name for v in node.outputs if v is not None}
    yield from (v for v in body.outputs if v.name not in made)


def _unknown(node: Node) -> str:
    if node.domain == EP_NAME:
        return "it is a partition already"
    have = registry.versions(node.domain, node.op_type)
    name = f"{node.domain or 'ai.onnx'}::{node.op_type}"
    if not have:
        return f"{name} is not translated"
    return f"{name} version {node.since_version} is not translated (versions {_listed(have)} are)"


def _listed(items: Iterable[object]) -> str:
    return ", ".join(str(i) for i in items)


def _inputs(node: Node, opdef: OpDef) -> Iterator[str]:
    for index, value in enumerate(node.inputs):
        param = opdef.param(index)
        if param is None:
            yield f"input {index} is not translated"
        elif value is None:
            if param.required:
                yield f"input '{param.name}' is missing"
        elif value.dtype in MLX_DTYPES and value.dtype not in param.types:
            yield f"input '{param.name}' of type {value.dtype} is not translated"
    for param in opdef.params[len(node.inputs) :]:
        if param.required:
            yield f"input '{param.name}' is missing"


def _attributes(node: Node, opdef: OpDef) -> Iterator[str]:
    given = {**node.attributes, **node.bodies}
    for name, value in given.items():
        if name in opdef.attributes:
            continue
        if name not in opdef.fixed or not np.array_equal(opdef.fixed[name], value):
            yield f"`{name}`={_shown(value)} is not translated"
    for name, default in opdef.attributes.items():
        if default is Parameter.empty and name not in given:
            yield f"attribute `{name}` is missing"


def _shown(value: object) -> str:
    if isinstance(value, Graph):
        return "a body"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _tensors(values: tuple[Value | None, ...], rules: Rules) -> Iterator[str]:
    for value in values:
        if value is None:
            continue
        if value.dtype == "undefined":
            yield f"'{value.name}' is not a tensor"
        elif value.dtype not in MLX_DTYPES:
            yield f"'{value.name}' is of type {value.dtype}, which MLX has no array for"
        elif value.dtype == "float64" and rules.device == "gpu":
            yield f"'{value.name}' is float64, which MLX computes on the CPU only"
