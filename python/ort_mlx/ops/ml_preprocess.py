"""Feature preparation of ai.onnx.ml: scaling, imputing, encoding, selecting and joining features.

Sources: ONNX ai.onnx.ml operators of the same names; mx.where, mx.take, mx.concatenate. Tables of
strings stay with another provider, since MLX has no strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from ..bounds import inside
from ..dtypes import ANY
from ..hosts import array_of
from ..node import Node
from ..registry import ML, op

_INPUTS = frozenset({"float32", "float64", "int64", "int32"})
_FLOATS = frozenset({"float32", "float64"})
_TYPES = {"x": _INPUTS}


def _single(values: tuple[float, ...]) -> mx.array:
    return mx.array(values, dtype=mx.float32)


@op("ArrayFeatureExtractor", domain=ML, since=(1,), types={"x": ANY})
def array_feature_extractor(x: mx.array, y: mx.array) -> mx.array:
    picked = mx.take(x, inside(y, x.shape[-1]).reshape(-1), axis=-1)
    return picked[None] if x.ndim == 1 else picked


@op("Binarizer", domain=ML, since=(1,), types=_TYPES)
def binarizer(x: mx.array, *, threshold: float = 0.0) -> mx.array:
    return (x > threshold).astype(x.dtype)


def _imputer_claim(node: Node) -> Iterator[str]:
    kind = "floats" if node.dtype("x") in _FLOATS else "int64s"
    count = len(node.attr(f"imputed_value_{kind}") or ())
    if not count:
        yield f"imputed_value_{kind} is missing"
    if _differs(node, count):
        yield "the number of imputed values is not that of the features"


def _differs(node: Node, count: int) -> bool:
    """Whether a list of this length fits neither one value nor the known number of features."""
    features = node.dims("x")[-1:]
    return count > 1 and features != () and isinstance(features[0], int) and features[0] != count


def _per_feature(values: tuple[float, ...], x: mx.array) -> mx.array:
    """The values as an array of the dtype of x, for all features or for each of them."""
    if len(values) != 1 and x.shape[-1:] != (len(values),):
        raise ValueError(f"{len(values)} values do not fit the features: got shape {x.shape}")
    return mx.array(values, dtype=x.dtype)


@op("Imputer", domain=ML, since=(1,), types=_TYPES, claim=_imputer_claim)
def imputer(
    x: mx.array,
    *,
    imputed_value_floats: tuple[float, ...] | None = None,
    imputed_value_int64s: tuple[int, ...] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> mx.array:
    if not mx.issubdtype(x.dtype, mx.floating):
        imputed = _per_feature(imputed_value_int64s or (0,), x)
        return mx.where(x == replaced_value_int64, imputed, x)
    missing = replaced_value_float
    replaced = mx.isnan(x) if missing != missing else x == missing
    return mx.where(replaced, _per_feature(imputed_value_floats or (0.0,), x), x)


def _normalizer_claim(node: Node) -> Iterator[str]:
    if (norm := node.attr("norm", "MAX")) not in ("MAX", "L1", "L2"):
        yield f"norm {norm} is unknown"
    if node.rank("x") == 0:
        yield "the input is a scalar"


@op("Normalizer", domain=ML, since=(1,), types=_TYPES, claim=_normalizer_claim)
def normalizer(x: mx.array, *, norm: str = "MAX") -> mx.array:
    x, axis = x.astype(mx.float32), min(1, x.ndim - 1)
    if norm == "MAX":
        divisor = x.max(axis=axis, keepdims=True)
    elif norm == "L1":
        divisor = mx.abs(x).sum(axis=axis, keepdims=True)
    else:
        divisor = mx.sqrt(mx.square(x).sum(axis=axis, keepdims=True))
    return mx.where(divisor != 0, x / divisor, x)


def _one_hot_claim(node: Node) -> Iterator[str]:
    if node.attr("cats_strings"):
        yield "the categories are strings"
    if not node.attr("zeros", 1):
        yield "an unknown category has to raise an error"


@op(
    "OneHotEncoder",
    domain=ML,
    since=(1,),
    types=_TYPES,
    claim=_one_hot_claim,
)
def one_hot_encoder(
    x: mx.array,
    *,
    cats_int64s: tuple[int, ...] | None = None,
    cats_strings: tuple[str, ...] | None = None,
    zeros: int = 1,
) -> mx.array:
    categories = mx.array(cats_int64s or (), dtype=mx.int64)
    return (x.astype(mx.int64)[..., None] == categories).astype(mx.float32)


def _scaler_claim(node: Node) -> Iterator[str]:
    offset, scale = node.attr("offset") or (), node.attr("scale") or ()
    if not scale or len(offset) != len(scale):
        yield "offset and scale are not of the same length"
    if _differs(node, len(scale)):
        yield "the number of scales is not that of the features"


@op("Scaler", domain=ML, since=(1,), types=_TYPES, claim=_scaler_claim)
def scaler(
    x: mx.array,
    *,
    offset: tuple[float, ...] | None = None,
    scale: tuple[float, ...] | None = None,
) -> mx.array:
    x = x.astype(mx.float32)
    return (x - _per_feature(offset or (0.0,), x)) * _per_feature(scale or (1.0,), x)


@op("FeatureVectorizer", domain=ML, since=(1,), types=_TYPES)
def feature_vectorizer(*x: mx.array, inputdimensions: tuple[int, ...] | None = None) -> mx.array:
    sizes = inputdimensions or tuple(p.size if p.ndim < 2 else p.shape[1] for p in x)
    parts = [p.reshape(1 if p.ndim < 2 else p.shape[0], -1) for p in x]
    fitted = [_fit(p.astype(mx.float32), size) for p, size in zip(parts, sizes, strict=True)]
    return mx.concatenate(fitted, axis=1)


def _fit(part: mx.array, size: int) -> mx.array:
    """The part cut or zero-padded to this many features."""
    missing = size - part.shape[1]
    return mx.pad(part, [(0, 0), (0, missing)]) if missing > 0 else part[:, :size]


_TABLES = ("int64s", "floats", "tensor")


def _label_claim(node: Node) -> Iterator[str]:
    keys, values = (_table(node.attributes, kind) for kind in ("keys", "values"))
    if len(keys) != len(values) or not keys:
        yield "keys and values are not of the same length"
    elif len({"nan" if key != key else key for key in keys}) != len(keys):
        yield "a key is repeated"  # ONNX takes the last of them, ONNX Runtime the first


def _table(attributes: Any, kind: str) -> tuple[Any, ...]:
    for name in _TABLES:
        if (found := attributes.get(f"{kind}_{name}")) is not None:
            return tuple(found.reshape(-1).tolist() if name == "tensor" else found)
    return ()


_ENCODED = frozenset({"float32", "float64", "int64", "int32", "int16"})


@op(
    "LabelEncoder",
    domain=ML,
    since=(2,),
    types={"x": _ENCODED},
    claim=_label_claim,
)
def label_encoder_2(
    x: mx.array,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    keys_floats: tuple[float, ...] | None = None,
    keys_int64s: tuple[int, ...] | None = None,
    keys_strings: tuple[str, ...] | None = None,
    values_floats: tuple[float, ...] | None = None,
    values_int64s: tuple[int, ...] | None = None,
    values_strings: tuple[str, ...] | None = None,
) -> mx.array:
    keys = keys_int64s or keys_floats or ()
    if values_int64s is None:
        return _encode(x, keys, _single(values_floats or ()), default_float, nan=False)
    return _encode(x, keys, mx.array(values_int64s, dtype=mx.int64), default_int64, nan=False)


@op(
    "LabelEncoder",
    domain=ML,
    since=(4,),
    types={"x": _ENCODED},
    claim=_label_claim,
)
def label_encoder(
    x: mx.array,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Any = None,
    keys_floats: tuple[float, ...] | None = None,
    keys_int64s: tuple[int, ...] | None = None,
    keys_strings: tuple[str, ...] | None = None,
    keys_tensor: Any = None,
    values_floats: tuple[float, ...] | None = None,
    values_int64s: tuple[int, ...] | None = None,
    values_strings: tuple[str, ...] | None = None,
    values_tensor: Any = None,
) -> mx.array:
    keys = keys_int64s or keys_floats or tuple(keys_tensor.reshape(-1).tolist())
    if values_tensor is not None:
        values = array_of(values_tensor.reshape(-1))
    elif values_int64s is not None:
        values = mx.array(values_int64s, dtype=mx.int64)
    else:
        values = _single(values_floats or ())
    default = default_float if mx.issubdtype(values.dtype, mx.floating) else default_int64
    if default_tensor is not None:
        default = default_tensor.reshape(-1).tolist()[0]
    return _encode(x, keys, values, default, nan=True)


def _encode(
    x: mx.array, keys: tuple[float, ...], values: mx.array, default: float, *, nan: bool
) -> mx.array:
    """values[position of x in keys], or the default; version 4 lets a NaN key match every NaN."""
    places = sorted((key, place) for place, key in enumerate(keys) if key == key)
    out = mx.full(x.shape, default, values.dtype)
    if places:
        ordered = mx.array([key for key, _ in places], dtype=x.dtype)
        found = _lower(ordered, x)
        picked = values[mx.array([place for _, place in places])][found]
        out = mx.where(ordered[found] == x, picked, out)
    nans = [place for place, key in enumerate(keys) if key != key]
    return mx.where(mx.isnan(x), values[nans[0]], out) if nans and nan else out


def _lower(ordered: mx.array, x: mx.array) -> mx.array:
    """For each x the position of the last key that is not greater, by bisection; at least 0."""
    found, step = mx.zeros(x.shape, mx.int32), 1 << (ordered.size - 1).bit_length()
    while step := step // 2:
        ahead = mx.minimum(found + step, ordered.size - 1)
        found = mx.where(ordered[ahead] <= x, ahead, found)
    return found
