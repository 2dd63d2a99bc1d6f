"""Tiny decoders with experts, recurrent states or both, with random weights, built by Mobius.

Run as a program it builds one, since that takes torch and transformers, which stay in memory:
`PYTHONPATH=tests python -m support.mobius_decoders FAMILY PROVIDER FOLDER`. Needs the group
`genai`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from support import building

NEEDED: Final = ("mobius", "torch", "transformers")
SIZES: Final = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "pad_token_id": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS: Final = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "shared_intermediate_size": 64,
    "first_k_dense_replace": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
}
LATENT: Final = {
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
STATES: Final = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_expand": 2,
    "mamba_d_conv": 4,
    "mamba_chunk_size": 16,
}
GATED_DELTA: Final = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"],
}
# What differs from SIZES, by the model type that transformers knows.
FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "cohere2": {},
    "mixtral": EXPERTS,
    "qwen2_moe": EXPERTS,
    "qwen3_moe": EXPERTS,
    "olmoe": EXPERTS,
    "phimoe": EXPERTS,
    "granitemoe": EXPERTS,
    "glm4_moe": EXPERTS,
    "ernie4_5_moe": EXPERTS,
    "hunyuan_v1_moe": EXPERTS,
    "jetmoe": EXPERTS,
    "dots1": EXPERTS,
    "deepseek_v2": {**EXPERTS, **LATENT, "topk_method": "greedy"},
    "deepseek_v3": {**EXPERTS, **LATENT},
    "gpt_oss": {
        **EXPERTS,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 16,
    },
    "mamba": {"state_size": 8, "expand": 2, "conv_kernel": 4, "time_step_rank": 8},
    "mamba2": {
        "state_size": 8,
        "expand": 2,
        "conv_kernel": 4,
        "num_heads": 8,
        "n_groups": 2,
        "chunk_size": 16,
    },
    "bamba": {**STATES, "attn_layer_indices": [1]},
    "granitemoehybrid": {**EXPERTS, **STATES, "layer_types": ["mamba", "attention"]},
    "jamba": {
        **EXPERTS,
        "mamba_d_state": 8,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_dt_rank": 8,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    "zamba2": {
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "hybrid_layer_ids": [1, 3],
        "num_mem_blocks": 1,
        "mamba_d_state": 8,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_ngroups": 1,
        "n_mamba_heads": 8,
        "chunk_size": 16,
    },
    "qwen3_next": {**EXPERTS, **GATED_DELTA},
    "qwen3_5_text": GATED_DELTA,
}
ONE_BY_ONE: Final = frozenset({"mamba", "mamba2", "jamba"})  # these take one token a Run
PROVIDERS: Final = ("default", "mlx", "onnx-standard")  # that Mobius writes a graph for


def missing() -> str | None:
    """Why nothing can be built here, or None."""
    return building.missing(NEEDED)


def built(family: str, provider: str, cache: Path) -> Path:
    """The model file of a decoder; builds it the first time."""
    return building.built(Path(__file__), cache, family, provider) / "model.onnx"


def _build(family: str, provider: str, folder: Path) -> None:
    from transformers import AutoConfig

    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        checkpoint, graph, made = (Path(scratch) / name for name in ("config", "graph", "made"))
        AutoConfig.for_model(family, **{**SIZES, **FAMILIES[family]}).save_pretrained(checkpoint)
        command = [sys.executable, "-m", "mobius", "build", "--model", str(checkpoint)]
        command += ["--ep", provider, "--no-weights", str(graph)]
        subprocess.run(command, check=True)
        model = onnx.load(graph / "model.onnx")
        _fill(model)
        made.mkdir()
        onnx.save(model, made / "model.onnx")
        building.settle(made, folder)


def _fill(model: onnx.ModelProto) -> None:
    """Give every weight that the graph only names values of its own."""
    graph = model.graph
    known = {v.name for v in (*graph.input, *graph.initializer)}
    known |= {name for node in graph.node for name in node.output}
    named = {name for node in graph.node for name in node.input if name}
    for value in graph.value_info:
        if value.name in named - known:
            kind = value.type.tensor_type
            shape = [d.dim_value for d in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            weight = _weight(value.name, shape).astype(dtype)
            graph.initializer.append(onnx.numpy_helper.from_array(weight, value.name))


def _weight(name: str, shape: list[int]) -> NDArray[Any]:
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("A_log"):
        return np.log(draw.uniform(1, 4, shape))
    values = draw.standard_normal(shape) * (0.15 if len(shape) > 1 else 0.1)
    return values + 1 if "norm" in name and len(shape) == 1 else values


if __name__ == "__main__":
    _build(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
