"""A BERT-base-shaped encoder with random weights, in the plain operators that exporters write."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

WIDTH, HEADS = 768, 12


class _Builder:
    """Adds nodes and weights, naming them in order."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._draw = np.random.default_rng(0)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, value: NDArray[Any]) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(value, name))
        return name

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def linear(self, x: str, rows: int, columns: int) -> str:
        weight = self._draw.standard_normal((rows, columns)).astype(np.float32) * 0.02
        bias = self._draw.standard_normal(columns).astype(np.float32) * 0.02
        return self.add("Add", self.add("MatMul", x, self.constant(weight)), self.constant(bias))

    def norm(self, x: str) -> str:
        scale, bias = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        return self.add(
            "LayerNormalization", x, self.constant(scale), self.constant(bias), epsilon=1e-12
        )

    def heads(self, x: str, perm: list[int]) -> str:
        shape = self.constant(np.array([0, 0, HEADS, WIDTH // HEADS]))
        return self.add("Transpose", self.add("Reshape", x, shape), perm=perm)

    def attention(self, x: str) -> str:
        query, key, value = (self.linear(x, WIDTH, WIDTH) for _ in range(3))
        scores = self.add("MatMul", self.heads(query, [0, 2, 1, 3]), self.heads(key, [0, 2, 3, 1]))
        scores = self.add("Div", scores, self.scalar((WIDTH / HEADS) ** 0.5))
        weights = self.add("Softmax", self.add("Add", scores, "mask"), axis=-1)
        mixed = self.add("MatMul", weights, self.heads(value, [0, 2, 1, 3]))
        merged = self.add("Transpose", mixed, perm=[0, 2, 1, 3])
        return self.add("Reshape", merged, self.constant(np.array([0, 0, WIDTH])))

    def gelu(self, x: str) -> str:
        erf = self.add("Erf", self.add("Div", x, self.scalar(2**0.5)))
        half = self.add("Mul", x, self.add("Add", erf, self.scalar(1)))
        return self.add("Mul", half, self.scalar(0.5))

    def layer(self, x: str) -> str:
        x = self.norm(self.add("Add", self.linear(self.attention(x), WIDTH, WIDTH), x))
        inner = self.gelu(self.linear(x, WIDTH, 4 * WIDTH))
        return self.norm(self.add("Add", self.linear(inner, 4 * WIDTH, WIDTH), x))


def encoder(layers: int = 12) -> bytes:
    """The model: x [1, tokens, 768] and an additive mask [1, 1, 1, tokens] to y like x."""
    builder = _Builder()
    x = "x"
    for _ in range(layers):
        x = builder.layer(x)
    y = builder.add("Identity", x)
    floats = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        builder.nodes,
        "encoder",
        [
            onnx.helper.make_tensor_value_info("x", floats, [1, "tokens", WIDTH]),
            onnx.helper.make_tensor_value_info("mask", floats, [1, 1, 1, "tokens"]),
        ],
        [onnx.helper.make_tensor_value_info(y, floats, None)],
        builder.weights,
    )
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(model.SerializeToString())


def tokens(count: int) -> dict[str, NDArray[np.float32]]:
    """Random activations for `count` tokens, and a mask that hides none."""
    draw = np.random.default_rng(1)
    return {
        "x": draw.standard_normal((1, count, WIDTH)).astype(np.float32),
        "mask": np.zeros((1, 1, 1, count), np.float32),
    }
