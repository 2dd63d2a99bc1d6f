"""Cases as the claim and the op functions see them, without a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import onnx

from ort_mlx.claim import bind
from ort_mlx.dtypes import ONNX_NAMES
from ort_mlx.node import Constant, Node, Value
from ort_mlx.safety import Safety
from support import schemas
from support.case import Array, Case, Dim
from support.edges import onnx_name, to_mlx


def node_of(c: Case, version: int, dtype: str) -> Node:
    """The node of a case as the native layer would describe it."""
    values = [
        None if a is None else _value(f"x{i}", a, x.shape, x.constant)
        for i, (x, a) in enumerate(zip(c.inputs, c.arrays(dtype, 0), strict=True))
    ]
    result = ONNX_NAMES[c.attributes["dtype"]] if "dtype" in c.attributes else dtype
    outputs = [
        Value(f"y{i}", result, None) if wanted else None for i, wanted in enumerate(c.outputs)
    ]
    attributes = dict(_defaults(c, version))
    attributes |= {k: _attribute(v) for k, v in c.attributes.items()}
    made = Node(0, "node", c.domain, c.op_type, version, tuple(values), tuple(outputs), attributes)
    return bind(made)[0]


def safety_of(c: Case) -> Safety:
    """What the op allows for the node of a case."""
    return c.opdef.safety_of(node_of(c, *next(iter(c.variants()))))[0]


def _defaults(c: Case, version: int) -> dict[str, Any]:
    """ORT shows a node with the defaults of its schema filled in."""
    schema = schemas.all_schemas()[c.domain, c.op_type, version]
    return {
        k: v for k, v in schema.attributes.items() if v is not None and v is not schemas.REQUIRED
    }


def _attribute(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _value(name: str, a: Array, shape: tuple[int | Dim, ...], constant: bool) -> Value:
    dims = tuple(str(d) if isinstance(d, Dim) else d for d in shape)
    made = None
    if constant:
        made = Constant(onnx_name(a.dtype), a.shape, a.nbytes, lambda: a, lambda: to_mlx(a))
    return Value(name, onnx_name(a.dtype), dims, made)


def call(c: Case, version: int, dtype: str) -> tuple[Callable[..., Any], list[list[mx.array]]]:
    """A function of a case's array inputs, and these inputs in each round.

    Host parameters are bound to their values in the first round.
    """
    node = node_of(c, version, dtype)
    opdef = c.opdef
    keywords: dict[str, Any] = {k: v for k, v in node.attributes.items() if k in opdef.attributes}
    if opdef.wants_node:
        keywords["node"] = node
    fixed: dict[int, Any] = {}
    rounds: list[list[mx.array]] = [[], []]
    for i, first in enumerate(c.arrays(dtype, 0)):
        param = opdef.param(i)
        assert param is not None
        if first is None:
            fixed[i] = None
        elif param.host is not None:
            fixed[i] = param.host.convert(first)
        else:
            for turn in (0, 1):
                array = to_mlx(c.arrays(dtype, turn)[i])  # type: ignore[arg-type]
                rounds[turn].append(array if param.prepare is None else param.prepare(array))

    def run(*arrays: mx.array) -> Any:
        rest = iter(arrays)
        given = [fixed[i] if i in fixed else next(rest) for i in range(len(c.inputs))]
        for positions, prepare in opdef.joint_prepares:
            parts = [given[p] if p < len(given) else None for p in positions]
            given = [None if i in positions else value for i, value in enumerate(given)]
            given[positions[0]] = prepare(node, *parts)
        return opdef.fn(*given, **keywords)

    return run, rounds
