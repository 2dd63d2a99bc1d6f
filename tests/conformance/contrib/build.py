"""Cases of com.microsoft: one node with its inputs.

The answers are those of ORT CPU where it has a kernel.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
import onnx.helper as oh
from numpy.typing import NDArray

Array = NDArray[Any]
MS: Final = "com.microsoft"
FLOATS: Final = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True)
class Const:
    """An input that is an initializer."""

    array: Array


@dataclass(frozen=True)
class ContribCase:
    """A model of one node, its inputs and how close the outputs have to be."""

    name: str
    model: onnx.ModelProto
    inputs: list[Array]
    rtol: float
    atol: float
    oracle: Callable[[onnx.ModelProto, list[Any]], list[Any]] | None = None
    defined: Callable[[onnx.ModelProto, list[Any], list[Any]], list[Any]] | None = None


class Random:
    """Arrays from a stream that the name decides."""

    def __init__(self, name: str) -> None:
        self._rng = np.random.default_rng(zlib.crc32(name.encode()))

    def normal(self, *shape: int, dtype: Any = np.float32, scale: float = 1) -> Array:
        """Normal values."""
        return (self._rng.standard_normal(shape) * scale).astype(dtype)

    def uniform(
        self, *shape: int, low: float = 0, high: float = 1, dtype: Any = np.float32
    ) -> Array:
        """Uniform values."""
        return self._rng.uniform(low, high, shape).astype(dtype)

    def bytes(self, *shape: int) -> Array:
        """Any uint8."""
        return self._rng.integers(0, 256, shape).astype(np.uint8)

    def signed_bytes(self, *shape: int) -> Array:
        """Any int8 but -128."""
        return self._rng.integers(-127, 128, shape).astype(np.int8)

    def order(self, count: int) -> Array:
        """The numbers below `count`, shuffled."""
        return self._rng.permutation(count)


def case(
    name: str,
    op_type: str,
    *inputs: Array | Const | None,
    outputs: int | Sequence[bool] = 1,
    types: Sequence[int] = (),
    domain: str = MS,
    close: tuple[float, float] = (0, 0),
    oracle: Callable[[onnx.ModelProto, list[Any]], list[Any]] | None = None,
    defined: Callable[[onnx.ModelProto, list[Any], list[Any]], list[Any]] | None = None,
    **attributes: Any,
) -> ContribCase:
    """One call of an operator.

    Args:
        name: what is special about it.
        op_type: the operator.
        *inputs: arrays given at run time, initializers, or None for one left out.
        outputs: how many, or for each whether it is wanted.
        types: their element types; that of the first float input when left out.
        domain: of the operator.
        close: relative and absolute tolerance.
        oracle: the answer where ORT CPU has no kernel.
        defined: marks with NaN what the operator leaves undefined.
        **attributes: of the node.
    """
    wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
    results = [f"y{i}" if is_wanted else "" for i, is_wanted in enumerate(wanted)]
    graph = oh.make_graph([], name, [], [])
    given: list[Array] = []
    names = []
    for i, x in enumerate(inputs):
        names.append("" if x is None else f"x{i}")
        if isinstance(x, Const):
            graph.initializer.append(onnx.numpy_helper.from_array(x.array, f"x{i}"))
        elif x is not None:
            code = oh.np_dtype_to_tensor_dtype(x.dtype)
            graph.input.append(oh.make_tensor_value_info(f"x{i}", code, x.shape))
            given.append(x)
    graph.node.append(oh.make_node(op_type, names, results, "node", domain=domain, **attributes))
    dtype = _float_of(inputs)
    codes = list(types) or [oh.np_dtype_to_tensor_dtype(dtype)] * len(results)
    graph.output.extend(
        oh.make_tensor_value_info(r, code, None)
        for r, code in zip(results, codes, strict=True)
        if r
    )
    imports = [oh.make_opsetid("", 21), oh.make_opsetid(MS, 1)]
    rtol, atol = close if any(close) else ((1e-3, 1e-4) if dtype == np.float32 else (1e-2, 1e-2))
    model = oh.make_model(graph, opset_imports=imports, ir_version=10)
    return ContribCase(f"{op_type}_{name}", model, given, rtol, atol, oracle, defined)


def _float_of(inputs: Sequence[Array | Const | None]) -> Any:
    arrays = [x.array if isinstance(x, Const) else x for x in inputs if x is not None]
    return next((a.dtype for a in arrays if a.dtype.kind == "f"), np.dtype(np.float32))
