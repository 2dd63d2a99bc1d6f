"""Rotary position embedding in both domains, and the multimodal form.

Sources: ONNX RotaryEmbedding-23; com.microsoft RotaryEmbedding and MRotaryEmbedding. The models
carry tables of cosines and sines, which mx.fast.rope cannot take, so the rotation is written out.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..bounds import inside
from ..dtypes import SINGLES
from ..node import Node
from ..registry import MS, op
from ._heads import merge_heads, split_heads


def rotate(x: mx.array, cos: mx.array, sin: mx.array, *, interleaved: bool) -> mx.array:
    """Rotate the first channels of each head, twice as many as the tables have columns.

    Args:
        x: heads, [batch, heads, length, size].
        cos: cosine of each pair's angle, [batch or 1, length, pairs].
        sin: sine of each pair's angle, like `cos`.
        interleaved: pairs are neighbours, else halves.
    """
    width = 2 * cos.shape[-1]
    if width > x.shape[-1] or cos.shape != sin.shape:
        raise ValueError(f"rotary tables do not fit: {cos.shape}, {sin.shape} for {x.shape}")
    cos, sin = (t[:, None].astype(mx.float32) for t in (cos, sin))
    turned = x[..., :width].astype(mx.float32)
    if interleaved:
        real, imag = turned[..., 0::2], turned[..., 1::2]
    else:
        real, imag = turned[..., : width // 2], turned[..., width // 2 :]
    pair = [real * cos - imag * sin, imag * cos + real * sin]
    if interleaved:
        turned = mx.stack(pair, axis=-1).reshape(turned.shape)
    else:
        turned = mx.concatenate(pair, axis=-1)
    turned = turned.astype(x.dtype)
    if width == x.shape[-1]:
        return turned
    return mx.concatenate([turned, x[..., width:]], axis=-1)


def _rotate_any(
    x: mx.array, cos: mx.array, sin: mx.array, *, heads: int, interleaved: bool
) -> mx.array:
    """Rotate tokens [batch, length, hidden] or heads [batch, heads, length, size]."""
    if x.ndim == 4:
        return rotate(x, cos, sin, interleaved=interleaved)
    heads = heads or x.shape[-1] // (2 * cos.shape[-1])
    return merge_heads(rotate(split_heads(x, heads), cos, sin, interleaved=interleaved))


def table_rows(cos: mx.array, sin: mx.array, positions: mx.array) -> tuple[mx.array, mx.array]:
    """The rows of both tables at these positions, [..., pairs]."""
    positions = inside(positions, cos.shape[0])
    return mx.take(cos, positions, axis=0), mx.take(sin, positions, axis=0)


def _rotary_23_claim(node: Node) -> Iterator[str]:
    if node.rank("x") == 3 and not node.attr("num_heads", 0):
        yield "a 3D input without num_heads"


@op("RotaryEmbedding", since=(23,), types={"x": SINGLES}, claim=_rotary_23_claim)
def rotary_embedding(
    x: mx.array,
    cos_cache: mx.array,
    sin_cache: mx.array,
    position_ids: mx.array | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> mx.array:
    if position_ids is not None:
        cos_cache, sin_cache = table_rows(cos_cache, sin_cache, position_ids)
    _check_width(cos_cache, rotary_embedding_dim)
    heads = num_heads or 0
    return _rotate_any(x, cos_cache, sin_cache, heads=heads, interleaved=bool(interleaved))


@op("RotaryEmbedding", domain=MS, since=(1,), types={"input": SINGLES}, fixed={"scale": 1.0})
def ms_rotary_embedding(
    input: mx.array,
    position_ids: mx.array,
    cos_cache: mx.array,
    sin_cache: mx.array,
    *,
    interleaved: int | None = None,
    is_packed_batching: int | None = None,
    num_heads: int | None = None,
    rotary_embedding_dim: int | None = None,
) -> mx.array:
    _check_width(cos_cache, rotary_embedding_dim or 0)
    if position_ids.ndim == 1:  # one value: the position of the first token
        position_ids = (position_ids[:1] + mx.arange(input.shape[-2]))[None]
    cos, sin = table_rows(cos_cache, sin_cache, position_ids)
    return _rotate_any(input, cos, sin, heads=num_heads or 0, interleaved=bool(interleaved))


def _mrotary_claim(node: Node) -> Iterator[str]:
    if len(node.attr("mrope_section")) != 3:
        yield "mrope_section has not three entries"
    if node.attr("mrope_layout", 0) not in (0, 1):
        yield f"mrope_layout {node.attr('mrope_layout')}"


@op(
    "MRotaryEmbedding",
    domain=MS,
    since=(1,),
    types={"input": SINGLES},
    fixed={"scale": 1.0},
    claim=_mrotary_claim,
)
def mrotary_embedding(
    input: mx.array,
    position_ids: mx.array,
    cos_cache: mx.array,
    sin_cache: mx.array,
    *,
    mrope_section: tuple[int, ...],
    interleaved: int | None = None,
    is_packed_batching: int | None = None,
    mrope_layout: int | None = None,
    num_heads: int | None = None,
    rotary_embedding_dim: int | None = None,
) -> mx.array:
    pairs = cos_cache.shape[-1]
    if sum(mrope_section) != pairs:
        raise ValueError(f"mrope_section {mrope_section} does not cover tables {cos_cache.shape}")
    _check_width(cos_cache, rotary_embedding_dim or 0)
    if position_ids.shape[0] != 3:
        raise ValueError(f"the positions are not three streams: {position_ids.shape}")
    position_ids = inside(position_ids, cos_cache.shape[0])
    streams = mx.array(_streams(mrope_section, bool(mrope_layout)))
    positions = mx.moveaxis(mx.take(position_ids, streams, axis=0), 0, -1)
    cos, sin = (t[positions, mx.arange(pairs)] for t in (cos_cache, sin_cache))
    return _rotate_any(input, cos, sin, heads=num_heads or 0, interleaved=bool(interleaved))


def _streams(section: tuple[int, ...], interleaved: bool) -> list[int]:
    """For each column of the tables, whether time (0), height (1) or width (2) is its position."""
    if not interleaved:
        return [stream for stream, count in enumerate(section) for _ in range(count)]
    columns = range(sum(section))
    return [c % 3 if c < 3 * section[c % 3] else 0 for c in columns]


def _check_width(table: mx.array, rotary_embedding_dim: int) -> None:
    if rotary_embedding_dim and 2 * table.shape[-1] != rotary_embedding_dim:
        raise ValueError(
            f"rotary tables {table.shape} do not have {rotary_embedding_dim} / 2 columns"
        )
