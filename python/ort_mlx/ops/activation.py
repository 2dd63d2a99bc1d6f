"""Activations: the ONNX ones, PRelu, the gated ones, and the Gelu family of com.microsoft.

Sources: ONNX operators and ORT contrib operators of the same names. Each body is its formula;
`@widened` computes halves in float32, as ORT does. Defaults such as 0.009999999776482582 are the
float32 neighbours of 0.01 that the schemas hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import mlx.core as mx

from ..dtypes import FLOATS, INDICES, NUMERIC, SIGNED_INTS, SINGLES
from ..node import Node
from ..registry import MS, op
from ..safety import PER_SHAPE, SHAPELESS
from ._elementwise import sigmoid, softplus, widened
from ._padding import elementwise

_SQRT_HALF: Final = math.sqrt(0.5)
_SQRT_2_OVER_PI: Final = math.sqrt(2 / math.pi)


@op(
    "Relu",
    since=(6, 13, 14),
    types={"x": FLOATS | SIGNED_INTS},
    safety=SHAPELESS,
    padding=elementwise,
)
def relu(x: mx.array) -> mx.array:
    return mx.maximum(x, 0)


@op("Sigmoid", since=(6, 13), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
def sigmoid_(x: mx.array) -> mx.array:
    return sigmoid(x)


@op("LeakyRelu", since=(6, 16), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def leaky_relu(x: mx.array, *, alpha: float = 0.009999999776482582) -> mx.array:
    return mx.where(x < 0, alpha * x, x)


@op(
    "PRelu",
    since=(7, 9, 16),
    types={"x": FLOATS | INDICES | {"uint32", "uint64"}},
    safety=SHAPELESS,
    padding=elementwise,
)
@widened
def p_relu(x: mx.array, slope: mx.array) -> mx.array:
    return mx.where(x < 0, slope * x, x)


@op("Elu", since=(6, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def elu(x: mx.array, *, alpha: float = 1.0) -> mx.array:
    return mx.where(x < 0, alpha * mx.expm1(x), x)


@op("Selu", since=(6, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def selu(
    x: mx.array, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323
) -> mx.array:
    return gamma * mx.where(x <= 0, alpha * mx.expm1(x), x)


@op("Celu", since=(12, 28), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def celu(x: mx.array, *, alpha: float = 1.0) -> mx.array:
    return mx.maximum(x, 0) + mx.minimum(alpha * mx.expm1(x / alpha), 0)


@op("HardSigmoid", since=(6, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def hard_sigmoid(x: mx.array, *, alpha: float = 0.20000000298023224, beta: float = 0.5) -> mx.array:
    return mx.clip(alpha * x + beta, 0, 1)


@op("HardSwish", since=(14, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def hard_swish(x: mx.array) -> mx.array:
    return x * mx.clip(x / 6 + 0.5, 0, 1)


@op("ThresholdedRelu", since=(10, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def thresholded_relu(x: mx.array, *, alpha: float = 1.0) -> mx.array:
    return mx.where(x > alpha, x, 0)


@op("Softplus", since=(1, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def softplus_(x: mx.array) -> mx.array:
    return softplus(x)


@op("Softsign", since=(1, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def softsign(x: mx.array) -> mx.array:
    return x / (1 + mx.abs(x))


@op("Mish", since=(18, 22), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def mish(x: mx.array) -> mx.array:
    return x * mx.tanh(softplus(x))


@op("Swish", since=(24,), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def swish(x: mx.array, *, alpha: float = 1.0) -> mx.array:
    return x * sigmoid(alpha * x)


@op("SwiGLU", since=(28,), types={"a": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def swi_glu(a: mx.array, b: mx.array, *, alpha: float = 1.0) -> mx.array:
    return a * sigmoid(alpha * a) * b


@op("Shrink", since=(9,), types={"input": NUMERIC}, safety=SHAPELESS, padding=elementwise)
def shrink(input: mx.array, *, bias: float = 0.0, lambd: float = 0.5) -> mx.array:
    x = input if input.dtype == mx.float64 else input.astype(mx.float32)
    shrunk = mx.where(x < -lambd, x + bias, mx.where(x > lambd, x - bias, 0))
    return shrunk.astype(input.dtype)


@widened
def _gelu(x: mx.array) -> mx.array:
    return 0.5 * x * (1 + mx.erf(x * _SQRT_HALF))


@widened
def _tanh_gelu(x: mx.array) -> mx.array:
    return 0.5 * x * (1 + mx.tanh(_SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


def _gelu_claim(node: Node) -> Iterator[str]:
    if node.attr("approximate", "none") not in ("none", "tanh"):
        yield "the approximation is neither none nor tanh"


# MLX's float64 erf is only float32-accurate, hence SINGLES in this family.
@op(
    "Gelu",
    since=(20,),
    types={"x": SINGLES},
    safety=SHAPELESS,
    claim=_gelu_claim,
    padding=elementwise,
)
def gelu(x: mx.array, *, approximate: str = "none") -> mx.array:
    return _tanh_gelu(x) if approximate == "tanh" else _gelu(x)


@op("Gelu", domain=MS, since=(1,), types={"x": SINGLES}, safety=SHAPELESS, padding=elementwise)
def contrib_gelu(x: mx.array) -> mx.array:
    return _gelu(x)


@op("BiasGelu", domain=MS, since=(1,), types={"a": SINGLES}, safety=SHAPELESS, padding=elementwise)
@widened
def bias_gelu(a: mx.array, b: mx.array) -> mx.array:
    return _gelu(a + b)


@op("FastGelu", domain=MS, since=(1,), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def fast_gelu(x: mx.array, bias: mx.array | None = None) -> mx.array:
    return _tanh_gelu(x if bias is None else x + bias)


@op("QuickGelu", domain=MS, since=(1,), types={"x": FLOATS}, safety=SHAPELESS, padding=elementwise)
@widened
def quick_gelu(x: mx.array, *, alpha: float = 1.7020000219345093) -> mx.array:
    return x * sigmoid(alpha * x)


@op("BiasSplitGelu", domain=MS, since=(1,), types={"x": SINGLES}, safety=PER_SHAPE)
@widened
def bias_split_gelu(x: mx.array, bias: mx.array) -> mx.array:
    left, right = mx.split(x + bias, 2, axis=-1)
    return left * _gelu(right)


@op("SwiGLU", domain=MS, since=(1,), types={"gate": SINGLES}, safety=PER_SHAPE)
def contrib_swi_glu(
    gate: mx.array,
    up: mx.array | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    round_activation: int = 0,
) -> mx.array:
    left, right = mx.split(gate, 2, axis=-1) if up is None else (gate, up)
    g, linear = left.astype(mx.float32), right.astype(mx.float32)
    if limit > 0:
        g, linear = mx.minimum(g, limit), mx.clip(linear, -limit, limit)
    active = g * mx.sigmoid(activation_alpha * g)
    if round_activation:
        active = active.astype(gate.dtype).astype(mx.float32)
    linear = linear + activation_beta if activation_beta else linear
    return (active * linear).astype(gate.dtype)
