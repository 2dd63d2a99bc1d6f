"""Operators of hybrid decoders: linear attention, causal convolution with a state, gated norms.

Sources: ONNX LinearAttention-27 and CausalConvWithState-27; com.microsoft LinearAttention,
CausalConvWithState, LinearAttentionGate, GatedRMSNorm and GatedAdd.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from ..dtypes import MLX_DTYPES, SINGLES
from ..node import Node
from ..registry import MS, op
from ._heads import merge_heads, split_heads
from ._recurrence import Tokens, run

_RULES = ("linear", "gated", "delta", "gated_delta")


def _linear_attention_claim(node: Node) -> Iterator[str]:
    rule = node.attr("update_rule", "gated_delta")
    if rule not in _RULES:
        yield f"update rule {rule}"
    if "gated" in rule and node.missing("decay"):
        yield f"update rule {rule} without decay"
    if "delta" in rule and node.missing("beta"):
        yield f"update rule {rule} without beta"


@op(
    "LinearAttention",
    since=(27,),
    types={"query": SINGLES, "past_state": SINGLES},
    claim=_linear_attention_claim,
)
def linear_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    past_state: mx.array | None = None,
    decay: mx.array | None = None,
    beta: mx.array | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    node: Node,
) -> tuple[mx.array, mx.array]:
    return ms_linear_attention(
        query,
        key,
        value,
        past_state,
        decay,
        beta,
        kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads,
        scale=scale,
        update_rule=update_rule,
        node=node,
    )


@op(
    "LinearAttention",
    domain=MS,
    since=(1,),
    types={"query": SINGLES, "past_state": SINGLES},
    claim=_linear_attention_claim,
)
def ms_linear_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    past_state: mx.array | None = None,
    decay: mx.array | None = None,
    beta: mx.array | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
    node: Node,
) -> tuple[mx.array, mx.array]:
    v = split_heads(value.astype(mx.float32), kv_num_heads)
    q = split_heads(query.astype(mx.float32), q_num_heads)
    size = q.shape[-1]
    if key.shape[-1] % size:
        raise ValueError(f"the heads of the keys are not of {size}, the queries' size: {key.shape}")
    # There may be fewer heads of queries and of keys than states; several states share one then.
    k = _shared(split_heads(key.astype(mx.float32), key.shape[-1] // size), kv_num_heads)
    q = _shared(q * (scale or size**-0.5), kv_num_heads)
    batch, heads, length, _ = q.shape
    q = q.reshape(batch, kv_num_heads, heads // kv_num_heads, length, size)
    tokens = Tokens(
        q,
        k,
        v,
        _gates(decay if "gated" in update_rule else None, kv_num_heads),
        _gates(beta if "delta" in update_rule else None, kv_num_heads),
    )
    state = mx.zeros((batch, kv_num_heads, size, v.shape[-1]), dtype=mx.float32)
    if past_state is not None:
        state = _last_state(past_state, state_window).astype(mx.float32)
    out, states = run(tokens, state, max(state_window, 1))
    y = merge_heads(out.reshape(batch, heads, length, v.shape[-1])).astype(query.dtype)
    present = _window(states, state_window) if state_window else states[-1]
    return y, present.astype(_state_dtype(node, past_state, query))


def _shared(heads: mx.array, states: int) -> mx.array:
    """Each head for several states where there are fewer of them."""
    count = heads.shape[1]
    if count >= states:
        return heads
    if states % count:
        raise ValueError(f"{states} states do not share {count} heads evenly: {heads.shape}")
    return mx.repeat(heads, states // count, axis=1)


def _gates(gates: mx.array | None, heads: int) -> mx.array | None:
    """[batch, length, heads * size], or one for all heads, to [batch, heads, length, size]."""
    if gates is None:
        return None
    if gates.shape[-1] == 1:
        gates = mx.broadcast_to(gates, (*gates.shape[:-1], heads))
    return split_heads(gates.astype(mx.float32), heads)


def _last_state(states: mx.array, window: int) -> mx.array:
    """The newest state of a window, or the only one."""
    if window and states.shape[0] != window:
        raise ValueError(f"not a window of {window} states: {states.shape}")
    return states[-1] if window else states


def _window(states: list[mx.array], window: int) -> mx.array:
    """The last states, oldest first, after zeros where there were fewer tokens."""
    blank = [mx.zeros_like(states[-1])] * (window - len(states))
    return mx.stack([*blank, *states])


def _state_dtype(node: Node, past: mx.array | None, like: mx.array) -> mx.Dtype:
    """The state's dtype: the past's, else what the graph says, else the input's."""
    if past is not None:
        return past.dtype
    declared = node.outputs[1] if len(node.outputs) > 1 else None
    return like.dtype if declared is None else MLX_DTYPES.get(declared.dtype, like.dtype)


def _causal_conv_claim(node: Node) -> Iterator[str]:
    if node.attr("activation", "none") not in ("none", "silu", "swish"):
        yield f"activation {node.attr('activation')}"


@op("CausalConvWithState", since=(27,), types={"input": SINGLES}, claim=_causal_conv_claim)
def causal_conv_with_state(
    input: mx.array,
    weight: mx.array,
    bias: mx.array | None = None,
    past_state: mx.array | None = None,
    *,
    activation: str = "none",
) -> tuple[mx.array, ...]:
    return ms_causal_conv_with_state(input, weight, bias, past_state, activation=activation)


def _ms_causal_conv_claim(node: Node) -> Iterator[str]:
    yield from _causal_conv_claim(node)
    names = ("input_channels", "input_channel_offset", "state_length", "state_update_capacity")
    extended = [name for name in names if node.attr(name, 0)]
    if extended and (not node.attr("channels_last", 0) or node.rank("input") != 3):
        yield f"{extended[0]} of an input that is not [batch, length, channels]"
    if extended and node.attr("state_window", 0):
        yield f"{extended[0]} and a window of states"
    wanted = len(node.outputs) > 2 and node.outputs[2] is not None
    if wanted and not node.attr("state_update_capacity", 0):
        yield "state updates without a capacity"


@op(
    "CausalConvWithState",
    domain=MS,
    since=(1,),
    types={"input": SINGLES},
    fixed={"ndim": 1},
    claim=_ms_causal_conv_claim,
)
def ms_causal_conv_with_state(
    input: mx.array,
    weight: mx.array,
    bias: mx.array | None = None,
    past_state: mx.array | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    input_channel_offset: int = 0,
    input_channels: int = 0,
    state_channels_last: int = -1,
    state_length: int = 0,
    state_update_capacity: int = 0,
    state_window: int = 0,
) -> tuple[mx.array, ...]:
    shape = input.shape
    x = input if channels_last else input.swapaxes(1, 2)
    x = x.flatten(2)  # [batch, length, channels]
    if input_channels:
        x = x[:, :, input_channel_offset : input_channel_offset + input_channels]
        shape = x.shape
    kernel, length = weight.shape[-1], x.shape[1]
    reach = (kernel - 1) * dilation
    held = state_length or reach
    if held < reach or x.shape[2] != weight.shape[0]:
        raise ValueError(
            f"a state of {held} rows and channels {x.shape} do not fit weight {weight.shape}"
        )
    state_last = bool(channels_last if state_channels_last < 0 else state_channels_last)
    past = mx.zeros((x.shape[0], held, x.shape[2]), dtype=x.dtype)
    if past_state is not None:
        past = _last_state(past_state, state_window)
        past = past.flatten(2) if state_last else past.swapaxes(1, 2)
        if past.shape[1] != held:
            raise ValueError(f"the state has not {held} rows: {past_state.shape}")
    row = mx.concatenate([past, x], axis=1)

    taps = weight.reshape(-1, kernel).astype(mx.float32)
    y = mx.zeros(x.shape, dtype=mx.float32) if bias is None else bias.astype(mx.float32)
    for tap in range(kernel):
        begin = held - reach + tap * dilation
        y = y + row[:, begin : begin + length].astype(mx.float32) * taps[:, tap]
    y = (y if activation == "none" else y * mx.sigmoid(y)).astype(input.dtype)
    y = y.reshape(shape) if channels_last else y.swapaxes(1, 2)

    ends = [*range(max(length - state_window, 0) + 1, length + 1)] if state_window else []
    states = [row[:, end : end + held] for end in ends or [length]]
    if state_last:
        states = [state.reshape(shape[0], held, *shape[2:]) for state in states]
    else:
        states = [state.swapaxes(1, 2) for state in states]
    state = _window(states, state_window) if state_window else states[-1]
    if not state_update_capacity:
        return y, state
    rows = x[:, :state_update_capacity]
    blank = state_update_capacity - rows.shape[1]
    return y, state, mx.pad(rows, [(0, 0), (0, blank), (0, 0)])


@op("LinearAttentionGate", domain=MS, since=(1,), types={"a": SINGLES})
def linear_attention_gate(
    a: mx.array, dt_bias: mx.array, decay_scale: mx.array, b: mx.array | None = None
) -> tuple[mx.array, ...]:
    rate = mx.logaddexp(a.astype(mx.float32) + dt_bias, mx.array(0.0))
    decay = (decay_scale * rate).astype(a.dtype)
    if b is None:
        return (decay,)
    return decay, mx.sigmoid(b.astype(mx.float32)).astype(a.dtype)


def _gated_norm_claim(node: Node) -> Iterator[str]:
    if (activation := node.attr("activation", "silu")) not in ("silu", "swish", "sigmoid"):
        yield f"activation {activation}"


@op("GatedRMSNorm", domain=MS, since=(1,), types={"x": SINGLES}, claim=_gated_norm_claim)
def gated_rms_norm(
    x: mx.array,
    scale: mx.array,
    gate: mx.array,
    *,
    activation: str = "silu",
    epsilon: float = 1e-5,
) -> mx.array:
    size = scale.shape[0]
    if x.shape[-1] % size:
        raise ValueError(f"last dimension is not a multiple of the scale's {size}: {x.shape}")
    rows = x.astype(mx.float32).reshape(*x.shape[:-1], x.shape[-1] // size, size)
    y = mx.fast.rms_norm(rows, scale.astype(mx.float32), epsilon).reshape(x.shape)
    z = gate.astype(mx.float32)
    factor = mx.sigmoid(z) if activation == "sigmoid" else z * mx.sigmoid(z)
    return (y * factor).astype(x.dtype)


def _gated_add_claim(node: Node) -> Iterator[str]:
    if not node.missing("gate_weight") and node.dtype("x") != "bfloat16":
        yield "a projected gate in another type than bfloat16"


@op("GatedAdd", domain=MS, since=(1,), types={"x": SINGLES}, claim=_gated_add_claim)
def gated_add(
    x: mx.array, y: mx.array, gate: mx.array, gate_weight: mx.array | None = None
) -> mx.array:
    if gate_weight is None:
        return x + y * gate
    projected = (gate.astype(mx.float32) @ gate_weight.astype(mx.float32)).astype(x.dtype)
    return x + y * mx.sigmoid(projected.astype(mx.float32)).astype(x.dtype)
