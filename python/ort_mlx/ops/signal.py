"""Signal processing: DFT, STFT, the window functions and MelWeightMatrix.

Sources: ONNX operators of the same names; mx.fft. A complex signal is ONNX's last axis of two,
which MLX views as one complex64. Windows and mel weights depend on sizes only and are computed in
Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import INDICES, SINGLES, mlx_dtype
from ..hosts import HostFloat, HostInt
from ..node import Node
from ..registry import op


def _from_parts(x: mx.array) -> mx.array:
    """[..., 1] or [..., 2] of any float type as a real or complex array without that axis."""
    if x.shape[-1] not in (1, 2):
        raise ValueError(f"the last axis is neither real nor complex: got shape {x.shape}")
    x = x.astype(mx.float32)
    return x.squeeze(-1) if x.shape[-1] == 1 else mx.contiguous(x).view(mx.complex64).squeeze(-1)


def _to_parts(x: mx.array, dtype: mx.Dtype) -> mx.array:
    return mx.stack([mx.real(x), mx.imag(x)], axis=-1).astype(dtype)


def _dft_claim(node: Node) -> Iterator[str]:
    dims = node.dims("input_")
    if len(dims) == 1 or (dims and isinstance(dims[-1], int) and dims[-1] not in (1, 2)):
        yield "the last axis is neither real nor complex"


def _dft(x: mx.array, length: int | None, axis: int, inverse: int, onesided: int) -> mx.array:
    signal = _from_parts(x)
    axis += x.ndim if axis < 0 else 0
    if not 0 <= axis < x.ndim - 1 or (length is not None and length < 1):
        raise ValueError(f"axis {axis} or length {length} does not fit: got shape {x.shape}")
    if inverse and onesided:
        length = 2 * (x.shape[axis] - 1) if length is None else length
        return mx.fft.irfft(signal, length, axis)[..., None].astype(x.dtype)
    if inverse:
        return _to_parts(mx.fft.ifft(signal, length, axis), x.dtype)
    return _to_parts(_forward(signal, length, axis, onesided), x.dtype)


def _forward(signal: mx.array, length: int | None, axis: int, onesided: int) -> mx.array:
    if not onesided:
        return mx.fft.fft(signal, length, axis)
    if signal.dtype != mx.complex64:
        return mx.fft.rfft(signal, length, axis)
    full = mx.fft.fft(signal, length, axis)
    return mx.split(full, [full.shape[axis] // 2 + 1], axis)[0]


@op("DFT", since=(17,), types={"input_": SINGLES, "dft_length": INDICES}, claim=_dft_claim)
def dft_17(
    input_: mx.array,
    dft_length: HostInt | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> mx.array:
    return _dft(input_, dft_length, axis, inverse, onesided)


@op("DFT", since=(20,), types={"input_": SINGLES, "dft_length": INDICES}, claim=_dft_claim)
def dft(
    input_: mx.array,
    dft_length: HostInt | None = None,
    axis: HostInt | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> mx.array:
    return _dft(input_, dft_length, -2 if axis is None else axis, inverse, onesided)


def _stft_claim(node: Node) -> Iterator[str]:
    dims = node.dims("signal")
    parts = dims[2] if len(dims) == 3 else 1
    if len(dims) not in (0, 2, 3) or (isinstance(parts, int) and parts not in (1, 2)):
        yield "the signal is not [batch, length, 1 or 2]"


@op("STFT", since=(17,), types={"signal": SINGLES, "frame_step": INDICES}, claim=_stft_claim)
def stft(
    signal: mx.array,
    frame_step: HostInt,
    window: mx.array | None = None,
    frame_length: HostInt | None = None,
    *,
    onesided: int = 1,
) -> mx.array:
    samples = signal.astype(mx.float32) if signal.ndim == 2 else _from_parts(signal)
    total = samples.shape[1]
    length = window.shape[0] if window is not None else frame_length or total
    if not 0 < length <= total or frame_step < 1 or (frame_length or length) != length:
        got = f"signal {signal.shape}, frame {frame_length}, window {length}, step {frame_step}"
        raise ValueError(f"frames do not fit the signal: {got}")
    starts = mx.arange(0, total - length + 1, frame_step)[:, None]
    frames = mx.take(samples, starts + mx.arange(length), axis=1)
    if window is not None:
        frames = frames * window.astype(mx.float32)
    return _to_parts(_forward(frames, None, 2, onesided), signal.dtype)


def _window(name: str, a0: float, a1: float, a2: float) -> None:
    """Register a cosine-sum window with these coefficients."""

    @op(name, since=(17,), types={"size": INDICES})
    def window(size: HostInt, *, output_datatype: int = 1, periodic: int = 1) -> mx.array:
        period = size if periodic else size - 1
        turn = 2 * math.pi / period if period else math.nan
        values = [a0 + a2 * math.cos(2 * turn * n) - a1 * math.cos(turn * n) for n in range(size)]
        return _of_type(values, output_datatype)


def _of_type(values: list[float], onnx_code: int) -> mx.array:
    """The values as an array, cut off at integers as a cast would."""
    dtype = mlx_dtype(onnx_code)
    if mx.issubdtype(dtype, mx.integer):
        return mx.array([int(v) if v == v else 0 for v in values], dtype=dtype)
    return mx.array(values, dtype=dtype)


_window("HannWindow", 0.5, 0.5, 0.0)
_window("HammingWindow", 25 / 46, 21 / 46, 0.0)
_window("BlackmanWindow", 0.42, 0.5, 0.08)


def _mel_bins(bins: int, length: int, rate: int, low: float, high: float) -> list[int]:
    """The spectrogram bin of each of the bins + 2 corners of the mel triangles."""
    edges = [2595 * math.log10(1 + hz / 700) for hz in (low, high)]
    step = (edges[1] - edges[0]) / (bins + 2)
    corners = (700 * (10 ** ((edges[0] + step * i) / 2595) - 1) for i in range(bins + 2))
    return [math.floor((length + 1) * hz / rate) for hz in corners]


@op("MelWeightMatrix", since=(17,), types={"num_mel_bins": INDICES, "lower_edge_hertz": SINGLES})
def mel_weight_matrix(
    num_mel_bins: HostInt,
    dft_length: HostInt,
    sample_rate: HostInt,
    lower_edge_hertz: HostFloat,
    upper_edge_hertz: HostFloat,
    *,
    output_datatype: int = 1,
) -> mx.array:
    rows = dft_length // 2 + 1
    highest = (dft_length + 1) * max(lower_edge_hertz, upper_edge_hertz) / sample_rate
    if min(lower_edge_hertz, upper_edge_hertz) < 0 or highest >= rows:
        got = f"{lower_edge_hertz} to {upper_edge_hertz} Hz for {rows} bins at {sample_rate} Hz"
        raise ValueError(f"the mel range does not fit the spectrum: got {got}")
    corners = _mel_bins(num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz)
    weights = [0.0] * (rows * num_mel_bins)
    for i, (left, center, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        for row in range(left, center + 1):
            weights[row * num_mel_bins + i] = (row - left) / (center - left) if left < center else 1
        for row in range(center, right):
            weights[row * num_mel_bins + i] = (right - row) / (right - center)
    return _of_type(weights, output_datatype).reshape(rows, num_mel_bins)
