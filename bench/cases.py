"""The named cases: real models with their real inputs, and small graphs that isolate one thing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from encoder import encoder, tokens
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
import zoo

Feed = dict[str, NDArray[Any]]
OPSET = 17


@dataclass(frozen=True)
class Case:
    """A model, as a path or bytes, and what to feed it."""

    name: str
    model: Callable[[], str | bytes]
    feed: Callable[[], Feed]


def cases() -> tuple[Case, ...]:
    """Every case whose model is here, synthetic ones first."""
    return (*synthetic(), *real())


def real() -> Iterator[Case]:
    """The models of scripts/zoo.py that have been fetched."""
    for model in zoo.MODELS:
        if model.published and model.path.exists():
            yield Case(model.name, lambda m=model: str(m.path), model.feed)


def synthetic() -> Iterator[Case]:
    """One operation, or a chain of one kind, at sizes where its cost shows."""
    draw = np.random.default_rng(0)

    def random(*shape: int) -> NDArray[Any]:
        return draw.standard_normal(shape, np.float32)

    def case(name: str, nodes: list[onnx.NodeProto], x: NDArray[Any], **weights: Any) -> Case:
        return Case(name, lambda: _model(nodes, x, weights), lambda: {"x": x})

    def node(op: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
        return onnx.helper.make_node(op, inputs, ["y"], **attributes)

    yield case("call_overhead", [node("Relu", "x")], random(8))
    yield case("chain_64_add", _chain("Add", 64), random(1024), w=random(1024))
    for size in (256, 1024):
        yield case(f"matmul_{size}", [node("MatMul", "x", "w")], random(size, size),
                   w=random(size, size))  # fmt: skip
    yield case("matvec_4096", [node("MatMul", "x", "w")], random(1, 4096), w=random(4096, 4096))
    yield case("conv_3x3_64", [node("Conv", "x", "w", pads=[1] * 4)], random(1, 64, 56, 56),
               w=random(64, 64, 3, 3))  # fmt: skip
    yield case("conv_depthwise_64", [node("Conv", "x", "w", pads=[1] * 4, group=64)],
               random(1, 64, 56, 56), w=random(64, 1, 3, 3))  # fmt: skip
    yield case("softmax_128x3072", [node("Softmax", "x")], random(128, 3072))
    yield case("layer_norm_128x3072", [node("LayerNormalization", "x", "w")], random(128, 3072),
               w=random(3072))  # fmt: skip
    yield case("erf_393k", [node("Erf", "x")], random(128, 3072))
    yield case("transpose_393k", [node("Transpose", "x")], random(128, 3072))
    yield case("reduce_mean_393k", [node("ReduceMean", "x", axes=[1])], random(128, 3072))

    yield Case("bert_base_128_tokens", encoder, lambda: tokens(128))


def _chain(op: str, length: int) -> list[onnx.NodeProto]:
    names = ["x", *(f"t{i}" for i in range(1, length)), "y"]
    return [onnx.helper.make_node(op, [before, "w"], [after]) for before, after in pairwise(names)]


def _model(nodes: list[onnx.NodeProto], x: NDArray[Any], weights: dict[str, Any]) -> bytes:
    floats = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "case",
        [onnx.helper.make_tensor_value_info("x", floats, x.shape)],
        [onnx.helper.make_tensor_value_info("y", floats, None)],
        [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())
