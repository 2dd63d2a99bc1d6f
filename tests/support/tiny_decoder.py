"""A folder that onnxruntime-genai opens: a decoder of a few kilobytes with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MS: Final = "com.microsoft"
FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
LAYERS, VOCABULARY, HEADS, KV_HEADS, SIZE, CONTEXT = 2, 96, 4, 2, 16, 2048
HIDDEN: Final = HEADS * SIZE
_KINDS: Final = ("key", "value")


def write_decoder(folder: Path) -> Path:
    """Write model.onnx and genai_config.json into a new folder, as a model builder does."""
    folder.mkdir()
    onnx.save(_model(), folder / "model.onnx")
    (folder / "genai_config.json").write_text(json.dumps(_configuration()))
    return folder


def _model() -> onnx.ModelProto:
    rng = np.random.default_rng(7)
    weights: dict[str, np.ndarray] = {"axis": np.array([1]), "one": np.array(1)}

    def weight(name: str, *shape: int) -> str:
        scale = 1.0 if len(shape) == 1 else 2 / np.sqrt(shape[0])
        weights[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
        return name

    angles = np.arange(CONTEXT)[:, None] / 100 ** (np.arange(SIZE // 2) * 2 / SIZE)
    weights["cos"], weights["sin"] = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    nodes = [
        helper.make_node("ReduceSum", ["attention_mask", "axis"], ["sums"], keepdims=0),
        helper.make_node("Sub", ["sums", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["lengths"], to=INT32),
        helper.make_node("Shape", ["attention_mask"], ["mask_shape"]),
        helper.make_node("Gather", ["mask_shape", "one"], ["columns"]),
        helper.make_node("Cast", ["columns"], ["total"], to=INT32),
        helper.make_node("Gather", [weight("table", VOCABULARY, HIDDEN), "input_ids"], ["x0"]),
    ]
    for i in range(LAYERS):
        nodes += _layer(i, weight)
    nodes += [
        _norm(f"x{LAYERS}", weight("final", HIDDEN), "normed"),
        helper.make_node("MatMul", ["normed", weight("head", HIDDEN, VOCABULARY)], ["logits"]),
    ]
    inputs = [
        helper.make_tensor_value_info("input_ids", INT64, ["batch", "tokens"]),
        helper.make_tensor_value_info("attention_mask", INT64, ["batch", "total"]),
        *_caches("past_key_values", "past"),
    ]
    logits = helper.make_tensor_value_info("logits", FLOAT, ["batch", "tokens", VOCABULARY])
    graph = helper.make_graph(
        nodes,
        "decoder",
        inputs,
        [logits, *_caches("present", "total")],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _caches(name: str, rows: str) -> list[onnx.ValueInfoProto]:
    shape = ["batch", KV_HEADS, rows, SIZE]
    return [
        helper.make_tensor_value_info(f"{name}.{i}.{kind}", FLOAT, shape)
        for i in range(LAYERS)
        for kind in _KINDS
    ]


def _norm(x: str, scale: str, y: str) -> onnx.NodeProto:
    return helper.make_node("SimplifiedLayerNormalization", [x, scale], [y], epsilon=1e-5)


def _layer(i: int, weight: Any) -> list[onnx.NodeProto]:
    width = {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS}
    past, present = (
        [f"{name}.{i}.{kind}" for kind in _KINDS] for name in ("past_key_values", "present")
    )
    return [
        _norm(f"x{i}", weight(f"norm{i}", HIDDEN), f"n{i}"),
        *(
            helper.make_node(
                "MatMul", [f"n{i}", weight(f"w{part}{i}", HIDDEN, heads * SIZE)], [f"{part}{i}"]
            )
            for part, heads in width.items()
        ),
        helper.make_node(
            "GroupQueryAttention",
            [f"q{i}", f"k{i}", f"v{i}", *past, "lengths", "total", "cos", "sin"],
            [f"a{i}", *present],
            domain=MS,
            num_heads=HEADS,
            kv_num_heads=KV_HEADS,
            do_rotary=1,
        ),
        helper.make_node("MatMul", [f"a{i}", weight(f"wo{i}", HIDDEN, HIDDEN)], [f"o{i}"]),
        helper.make_node("Add", [f"x{i}", f"o{i}"], [f"x{i + 1}"]),
    ]


def _configuration() -> dict[str, Any]:
    return {
        "model": {
            "type": "llama",
            "vocab_size": VOCABULARY,
            "context_length": CONTEXT,
            "bos_token_id": 1,
            "eos_token_id": VOCABULARY - 1,
            "pad_token_id": 0,
            "decoder": {
                "filename": "model.onnx",
                "head_size": SIZE,
                "hidden_size": HIDDEN,
                "num_attention_heads": HEADS,
                "num_hidden_layers": LAYERS,
                "num_key_value_heads": KV_HEADS,
                # Providers that another tool wrote, and that onnxruntime-genai does not know.
                "session_options": {"provider_options": [{"another": {}}]},
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"max_length": CONTEXT, "past_present_share_buffer": True},
    }
