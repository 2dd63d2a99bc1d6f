"""Tiny decoders of many families, with random weights, made by onnxruntime-genai's own builder.

Run as a program it builds one, since that takes torch and transformers, which stay in memory:
`PYTHONPATH=tests python -m support.decoders FAMILY PRECISION FOLDER`. Needs the group
`genai`.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from support import building

NEEDED: Final = ("onnxruntime_genai", "torch", "transformers", "onnx_ir")
SIZES: Final = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 600,  # not twice a layer's width, which the builder would take for its head
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
HEAD: Final = {"head_dim": 32}
LLAMA_3: Final = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


@dataclass(frozen=True)
class Family:
    """The configuration class of transformers, what differs from SIZES, options of the builder."""

    config: str
    changes: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()


_TIED: Final = {"tie_word_embeddings": True}
_WINDOW: Final = {**HEAD, "sliding_window": 64}
_GEMMA: Final = {**_WINDOW, "query_pre_attn_scalar": 32}
_FULL: Final = ("windowed_kv_cache=false",)
_PHI_3: Final = {"original_max_position_embeddings": 512}
_LFM: Final = {
    "num_hidden_layers": 3,
    "layer_types": ["conv", "full_attention", "conv"],
    "block_auto_adjust_ff_dim": False,
}
_MOE: Final = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "num_dense_layers": 1,
    "norm_topk_prob": True,
}
_HYBRID: Final = {  # of its layers the builder knows attention only
    "num_local_experts": 0,
    "layer_types": ["attention", "attention"],
    "shared_intermediate_size": 256,
}
FAMILIES: Final = {
    "llama": Family("LlamaConfig", {**HEAD, "tie_word_embeddings": False}),
    "llama3": Family("LlamaConfig", {**HEAD, **_TIED, "rope_parameters": LLAMA_3}),
    "mistral": Family("MistralConfig", _WINDOW),
    "qwen2": Family("Qwen2Config", _TIED),
    "qwen3": Family("Qwen3Config", {**HEAD, **_TIED}),
    "phi2": Family("PhiConfig", {"num_key_value_heads": 4, "partial_rotary_factor": 0.5}),
    "phi3": Family("Phi3Config", _PHI_3),
    "phi4": Family(
        "Phi3Config", {**_PHI_3, **_TIED, "hidden_size": 256, "partial_rotary_factor": 0.75}
    ),
    "gemma": Family("GemmaConfig", HEAD),
    "gemma2": Family("Gemma2Config", _GEMMA),
    "gemma2-full": Family("Gemma2Config", _GEMMA, _FULL),
    "gemma3": Family("Gemma3TextConfig", _GEMMA),
    "gemma3-full": Family("Gemma3TextConfig", _GEMMA, _FULL),
    "smollm3": Family("SmolLM3Config"),
    "lfm2": Family("Lfm2Config", _LFM),
    "lfm2-moe": Family("Lfm2MoeConfig", {**_LFM, **_MOE}),
    "gpt-oss": Family("GptOssConfig", {**HEAD, **_MOE, "sliding_window": 64}, _FULL),
    "granite-hybrid": Family("GraniteMoeHybridConfig", _HYBRID),
}


def missing() -> str | None:
    """Why nothing can be built here, or None."""
    return building.missing(NEEDED)


def built(family: str, precision: str, cache: Path) -> Path:
    """The folder of a decoder; builds it the first time."""
    return building.built(Path(__file__), cache, family, precision)


def _write_checkpoint(family: Family, folder: Path) -> None:
    import torch
    import transformers as hf
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    torch.manual_seed(0)
    config = getattr(hf, family.config)(**{**SIZES, **family.changes})
    model = hf.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "bias" in name:
                weight.copy_(torch.randn_like(weight) * 0.05)
            elif weight.ndim == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
            else:
                weight.mul_(3.0)  # larger logits, fewer near ties
    model.save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", *letters])}
    bytewise = Tokenizer(models.BPE(vocabulary, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    hf.PreTrainedTokenizerFast(tokenizer_object=bytewise, **special).save_pretrained(folder)
    ends = {key: value for key, value in SIZES.items() if key.endswith("_token_id")}
    hf.GenerationConfig(**ends).save_pretrained(folder)


def _flatten_rotary_parameters() -> None:
    """Give the builder Gemma 3's as it reads them: transformers 5 nests them by kind of layer."""
    import transformers as hf

    original = hf.AutoConfig.from_pretrained

    def from_pretrained(*given: Any, **options: Any) -> Any:
        config = original(*given, **options)
        nested = getattr(config, "rope_parameters", None) or {}
        if "full_attention" in nested:
            config.rope_parameters = dict(nested["full_attention"])
            config.rope_theta = nested["full_attention"]["rope_theta"]
            config.rope_local_base_freq = nested["sliding_attention"]["rope_theta"]
        return config

    hf.AutoConfig.from_pretrained = from_pretrained


def _build(family: Family, precision: str, folder: Path) -> None:
    import runpy

    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        checkpoint, made = Path(scratch) / "checkpoint", Path(scratch) / "model"
        _write_checkpoint(family, checkpoint)
        _flatten_rotary_parameters()
        sys.argv = ["builder", "-m", "local/tiny", "-i", str(checkpoint), "-o", str(made)]
        sys.argv += ["-p", precision, "-e", "webgpu" if precision == "fp16" else "cpu"]
        sys.argv += ["-c", str(Path(scratch) / "cache"), "--extra_options", "hf_token=false"]
        sys.argv += family.options
        runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")
        building.settle(made, folder)


if __name__ == "__main__":
    _build(FAMILIES[sys.argv[1]], sys.argv[2], Path(sys.argv[3]))
