"""Greedy decoding with a plain InferenceSession, the cache growing or in a shared buffer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

import ort_mlx
from zoo import without_rounded_activations

Array = NDArray[Any]
PROMPT: Final = (1, 40, 100, 200, 300, 41, 7, 9)
OTHER_PROMPT: Final = (1, 5, 6, 7, 8, 11, 12, 13)
_DTYPES: Final = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}
_LENGTHS: Final = ("past_sequence_length", "past_sliding_length", "total_sequence_length")


def open_decoder(folder: Path, *, on_mlx: bool) -> Any:
    """A session of the decoder in a folder."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if on_mlx:
        return ort.InferenceSession(
            folder / "model.onnx", ort_mlx.enable(options), enable_fallback=0
        )
    return ort.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])


def write_without_rounded_activations(folder: Path, target: Path) -> None:
    """Copy a 4-bit model so that ORT CPU computes it in float32, not with 8-bit activations."""
    target.mkdir()
    (target / "model.onnx").write_bytes(without_rounded_activations(folder / "model.onnx"))


class Decoding:
    """One generation on a session.

    Args:
        session: a decoder that onnxruntime-genai's builder made.
        head: the size of a head, which its inputs leave open.
        batch: how many sequences.
        capacity: rows of the cache, which past and present share; 0 lets it grow from nothing.
    """

    def __init__(self, session: Any, head: int, batch: int = 1, capacity: int = 0) -> None:
        self._session = session
        self._capacity = capacity
        self._length = 0
        self._inputs = {entry.name: entry for entry in session.get_inputs()}
        self._outputs = [output.name for output in session.get_outputs()]
        self._sizes = {
            "batch_size": batch,
            "kv_cache_dim": head,
            **dict.fromkeys(_LENGTHS, capacity),
        }
        self._past = {n: self._empty(n) for n in self._inputs if n.startswith("past")}

    def _empty(self, name: str) -> Any:
        shape = [self._sizes.get(n, n) for n in self._inputs[name].shape]
        return ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, self._dtype(name)))

    def _dtype(self, name: str) -> Any:
        return _DTYPES[self._inputs[name].type]

    def step(self, tokens: Array) -> Array:
        """Feed tokens [batch, length]; returns the logits of the last one, [batch, vocabulary]."""
        batch, length = tokens.shape
        self._length += length
        positions = np.arange(self._length - length, self._length)
        made = {
            "input_ids": tokens,
            "attention_mask": np.ones((batch, self._length)),
            "position_ids": np.broadcast_to(positions, (batch, length)),
        }
        feed = {  # an OrtValue holds on to the array that it is a view of
            name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value, self._dtype(name)))
            for name, value in made.items()
            if name in self._inputs
        }
        shared = {_present(n): n for n in self._past if self._capacity and "conv" not in n}
        binding = self._session.io_binding()
        for name, value in {**feed, **self._past}.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            if name in shared:
                binding.bind_ortvalue_output(name, self._past[shared[name]])
            else:
                binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        results = dict(zip(self._outputs, binding.get_outputs(), strict=True))
        self._past |= {n: results[_present(n)] for n in self._past if _present(n) not in shared}
        return np.asarray(results["logits"].numpy()[:, -1], np.float32)


def _present(name: str) -> str:
    return name.replace("past_key_values", "present").replace("past", "present")


def decode(
    decoding: Decoding, prompts: Sequence[Sequence[int]], steps: int, forced: Array | None = None
) -> tuple[Array, Array]:
    """Greedy tokens [steps, batch] and their logits; `forced` feeds these tokens instead."""
    tokens, rows = [], []
    row = decoding.step(np.array(prompts))
    for index in range(steps):
        rows.append(row)
        tokens.append(row.argmax(-1))
        if index + 1 < steps:
            row = decoding.step((tokens[-1] if forced is None else forced[index])[:, None])
    return np.array(tokens), np.array(rows)
