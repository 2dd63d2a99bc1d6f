"""Build graphs from the plain records that the native layer copies out of ORT.

The records are described in cpp/snapshot.h.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from . import _native
from .dtypes import MLX_DTYPES, ORT_NAMES, name_of
from .hosts import BFloat16Copy, HostValue, array_of
from .node import Constant, Graph, Node, Value


def graph_of(record: tuple[Any, ...]) -> Graph:
    """The Graph of a graph record."""
    value_records, input_ids, output_ids, node_records, metadata = record
    values = [_value(*v) for v in value_records]

    def pick(ids: tuple[int, ...]) -> tuple[Value | None, ...]:
        return tuple(None if i < 0 else values[i] for i in ids)

    nodes = []
    for index, (name, domain, op_type, since, ins, outs, attributes, bodies) in enumerate(
        node_records
    ):
        nodes.append(
            Node(
                index=index,
                name=name,
                domain="" if domain == "ai.onnx" else domain,
                op_type=op_type,
                since_version=since,
                inputs=pick(ins),
                outputs=pick(outs),
                attributes={k: _attribute(v) for k, v in attributes.items()},
                bodies={k: graph_of(b) for k, b in bodies.items()},
            )
        )
    return Graph(
        inputs=tuple(v for v in pick(input_ids) if v is not None and v.constant is None),
        outputs=tuple(v for v in pick(output_ids) if v is not None),
        nodes=tuple(nodes),
        metadata=metadata,
    )


def host_value(dtype: int, shape: tuple[int, ...], raw: bytes) -> HostValue:
    """A numpy array of the dtype that holds an ORT element type; float32 for bfloat16."""
    held = MLX_DTYPES[ORT_NAMES[dtype]]
    if held == mx.bfloat16:
        bits = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(shape).view(BFloat16Copy)
    return np.frombuffer(raw, name_of(held)).reshape(shape)


def _value(
    name: str, dtype: int, dims: tuple[Any, ...] | None, initializer: _native.Initializer | None
) -> Value:
    return Value(name, ORT_NAMES.get(dtype, "undefined"), dims, _constant(initializer))


def _constant(initializer: _native.Initializer | None) -> Constant | None:
    if initializer is None:
        return None
    dtype, shape = initializer.dtype, tuple(initializer.shape)

    def load() -> HostValue:
        return host_value(dtype, shape, initializer.bytes())

    def load_array() -> mx.array:
        return initializer.to_mlx()

    return Constant(ORT_NAMES.get(dtype, "undefined"), shape, initializer.nbytes, load, load_array)


def _attribute(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], bytes):
        made = host_value(*value)
        # numpy has no bfloat16; MLX has, and ops only pass the tensor on.
        return array_of(made) if isinstance(made, BFloat16Copy) else made
    return value
