"""Decoders with experts and with recurrent states: whole on MLX, the tokens of ORT CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ort_mlx
from support.mobius_decoders import FAMILIES, ONE_BY_ONE, PROVIDERS, built, missing
from zoo import cache_folder

pytestmark = [
    pytest.mark.models,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]
STEPS = 64
MOST_TRACES = 4  # of 64 steps: the prompt, and three for all further ones
PROMPT = [5, 17, 99, 250, 3, 8, 44, 71]
DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
# Attention with another rotary width than ORT's CPU kernel takes.
NOT_ON_CPU = {("qwen3_next", "mlx"), ("qwen3_5_text", "mlx"), ("glm4_moe", "mlx")}


def opened(path: Path, *, on_mlx: bool) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if on_mlx:
        return ort.InferenceSession(path, ort_mlx.enable(options), enable_fallback=0)
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def state_of(session: Any) -> dict[str, Any]:
    """Caches without rows, and states of zeros."""
    made = {}
    for entry in session.get_inputs():
        if entry.name.startswith("past"):
            _batch, *rest = entry.shape
            shape = [1, *(0 if isinstance(size, str) else size for size in rest)]
            made[entry.name] = np.zeros(shape, DTYPES[entry.type])
    return made


def present(name: str) -> str:
    return name.replace("past_key_values", "present").replace("past_states", "present")


def generate(session: Any, parts: list[list[int]]) -> tuple[list[int], np.ndarray]:
    """Greedy tokens after a prompt that is fed in these parts, and their logits."""
    shapes = {entry.name: entry.shape for entry in session.get_inputs()}
    outputs = [output.name for output in session.get_outputs()]
    state, length, tokens, rows = state_of(session), 0, [], []
    while len(tokens) < STEPS:
        part = parts.pop(0) if parts else tokens[-1:]
        length += len(part)
        positions = np.arange(length - len(part), length)[None]
        if len(shapes.get("position_ids", ())) == 3:
            positions = np.repeat(positions[None], 3, 0)
        feed = {
            "input_ids": np.array([part]),
            "attention_mask": np.ones((1, length), np.int64),
            "position_ids": positions,
        }
        feed = {name: value for name, value in feed.items() if name in shapes}
        results = dict(zip(outputs, session.run(None, {**feed, **state}), strict=True))
        state = {name: results[present(name)] for name in state}
        if not parts:
            rows.append(results["logits"][0, -1])
            tokens.append(int(rows[-1].argmax()))
    return tokens, np.array(rows)


def prompt_of(family: str) -> list[list[int]]:
    return [[token] for token in PROMPT] if family in ONE_BY_ONE else [list(PROMPT)]


FORMS = [(family, "default") for family in FAMILIES]
FORMS += [(f, p) for p in PROVIDERS[1:] for f in ("cohere2", "mixtral", "gpt_oss", "qwen3_moe")]


@pytest.mark.parametrize(("family", "provider"), FORMS)
def test_tokens(family: str, provider: str) -> None:
    path = built(family, provider, cache_folder())
    session = opened(path, on_mlx=True)
    report = ort_mlx.report(session)
    assert (report.left, report.partitions) == ([], 1)
    want, wanted = generate(opened(path, on_mlx=False), prompt_of(family))
    got, logits = generate(session, prompt_of(family))
    assert got == want
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=1e-3 * np.abs(wanted).max())
    assert report.counts["traces"] <= MOST_TRACES, report
    assert not report.failures
    assert not report.eager_reasons


@pytest.mark.parametrize(("family", "provider"), sorted(NOT_ON_CPU))
def test_tokens_of_another_build(family: str, provider: str) -> None:
    """Against the build in the standard's operators, of the same weights."""
    session = opened(built(family, provider, cache_folder()), on_mlx=True)
    assert ort_mlx.report(session).left == []
    theirs = opened(built(family, "default", cache_folder()), on_mlx=False)
    assert generate(session, [PROMPT])[0] == generate(theirs, [PROMPT])[0]
