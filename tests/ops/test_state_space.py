"""Linear attention, causal convolution with a state, gated norms."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from support.case import MS, Array, Case, Dim, Input, M, N, case, const, loose, omitted, rand
from support.ep import Ep

NONE = omitted()
T = Dim("T", (5, 70))  # within one chunk, and more than one
STEPS = loose(2e-2, 2e-2, "a state is carried through many tokens")


def heads(count: int, size: int, length: int | Dim = T, **bounds: float) -> Input:
    return rand(2, length, count * size, **bounds)


def linear(
    rule: str,
    *,
    queries: int = 2,
    keys: int = 2,
    key_heads: int = 0,
    length: int | Dim = T,
    past: bool = True,
    by_channel: bool = False,
    strengths: int = 0,
    domain: str = MS,
    id: str = "",
    **options: Any,
) -> Case:
    decay = heads(keys, 8 if by_channel else 1, length, low=-1, high=0) if "gated" in rule else NONE
    beta = heads(strengths or keys, 1, length, low=0, high=1) if "delta" in rule else NONE
    return case(
        "LinearAttention",
        heads(queries, 8, length),
        heads(key_heads or keys, 8, length, low=-0.3, high=0.3),
        heads(keys, 6, length),
        rand(2, keys, 8, 6) if past else NONE,
        decay,
        beta,
        domain=domain,
        outputs=2,
        id="-".join(filter(None, (rule, id, "ms" if domain else ""))),
        tolerance=STEPS,
        update_rule=rule,
        q_num_heads=queries,
        kv_num_heads=keys,
        **options,
    )


def conv(*inputs: Input, id: str, domain: str = MS, **options: Any) -> Case:
    return case(
        "CausalConvWithState",
        *inputs,
        domain=domain,
        outputs=2,
        id=id,
        tolerance=loose(1e-2, 5e-3, "halves are summed in another order"),
        **options,
    )


X, TAPS, BIAS = rand(2, 8, M), const(rand(8, 1, 4)), const(rand(8))


def _last_states(outputs: list[Array]) -> list[Array]:
    return [outputs[0], outputs[1][-1:]]


CASES = [
    *(
        linear(rule, domain=domain)
        for rule, domain in product(("linear", "gated", "delta", "gated_delta"), ("", MS))
    ),
    linear("gated_delta", id="no-past", past=False),
    linear("gated_delta", id="one", length=1),
    linear("gated_delta", id="grouped", queries=4),
    linear("gated_delta", id="more-keys", keys=4),
    linear("gated_delta", id="shared-keys", queries=2, keys=4, key_heads=2),
    linear("linear", id="one-shared-key", queries=4, keys=4, key_heads=1),
    linear("gated_delta", id="one-strength", strengths=1, scale=0.5),
    linear("gated", id="by-channel", by_channel=True),
    linear("gated_delta", id="by-channel", by_channel=True, queries=4),
    *(
        conv(
            X,
            TAPS,
            BIAS,
            rand(2, 8, 3),
            id=f"{activation}{'-ms' if domain else ''}",
            domain=domain,
            activation=activation,
        )
        for activation, domain in product(("none", "silu", "swish"), ("", MS))
    ),
    conv(X, TAPS, id="no-past"),
    conv(rand(2, 8, 1), TAPS, BIAS, rand(2, 8, 3), id="short"),
    conv(X, TAPS, BIAS, rand(2, 8, 6), id="dilated", dilation=2),
    conv(rand(2, M, 2, 4), TAPS, BIAS, rand(2, 3, 2, 4), id="channels-last", channels_last=1),
    case(
        "LinearAttentionGate",
        rand(2, M, 4),
        rand(4, dtype="float32"),
        rand(4, dtype="float32"),
        rand(2, M, 4),
        domain=MS,
        outputs=2,
    ),
    case(
        "LinearAttentionGate",
        rand(2, M, 4),
        rand(4, dtype="float32"),
        rand(4, dtype="float32"),
        domain=MS,
        id="decay",
    ),
    *(
        case(
            "GatedRMSNorm",
            rand(N, M, 32),
            const(rand(8)),
            rand(N, M, 32),
            domain=MS,
            activation=name,
        )
        for name in ("silu", "swish", "sigmoid")
    ),
    case("GatedAdd", rand(N, M, 8), rand(N, M, 8), rand(N, M, 1), domain=MS),
]


CONV = (rand(2, 6, M), const(rand(6, 1, 4)))


def _extended(x: Array, w: Array, bias: Any, past: Array, **given: Any) -> list[Array]:
    """Channels in the middle, a longer state in either layout, and what it takes in, by hand."""
    first, kernel, size = given["input_channel_offset"], w.shape[-1], given["dilation"]
    x = x[:, :, first : first + given["input_channels"]]
    turned = given.get("state_channels_last") == 0
    row = np.concatenate([past.swapaxes(1, 2) if turned else past, x], axis=1)
    held, length = given["state_length"], x.shape[1]
    y = np.zeros(x.shape, np.float32) + bias
    for tap in range(kernel):
        begin = held - (kernel - 1 - tap) * size
        y += row[:, begin : begin + length] * w[:, 0, tap]
    state = row[:, -held:]
    taken = np.zeros((len(x), given["state_update_capacity"], x.shape[2]), np.float32)
    count = min(length, taken.shape[1])
    taken[:, :count] = x[:, :count]
    made = (y / (1 + np.exp(-y)), state.swapaxes(1, 2) if turned else state, taken)
    return [t.astype(x.dtype) for t in made]


CASES += [
    replace(
        conv(
            *(rand(2, M, 9), const(rand(6, 1, 3)), rand(6), rand(2, *(shape))),
            id=f"extended-{layout}",
            activation="silu",
            channels_last=1,
            dilation=2,
            input_channel_offset=2,
            input_channels=6,
            state_channels_last=layout,
            state_length=5,
            state_update_capacity=3,
        ),
        outputs=(True,) * 3,
        reference=_extended,
    )
    for layout, shape in ((-1, (5, 6)), (0, (6, 5)))
]


def test_a_window_of_states_has_its_size(ep: Ep) -> None:
    c = conv(*CONV, NONE, rand(Dim("W", (1, 3)), 2, 6, 3), id="short-window", state_window=3)
    ep.fails(c, "not a window of 3 states")


REFUSED = [
    (
        replace(linear("gated", id="no-decay"), inputs=linear("linear").inputs),
        "update rule gated without decay",
    ),
    (
        replace(linear("delta", id="no-beta"), inputs=linear("linear").inputs),
        "update rule delta without beta",
    ),
    (
        replace(conv(*CONV, id="updates"), outputs=(True,) * 3),
        "state updates without a capacity",
    ),
    (
        conv(*CONV, id="updates-first", state_update_capacity=2),
        "state_update_capacity of an input that is not [batch, length, channels]",
    ),
    (
        conv(
            *(rand(2, M, 6), const(rand(6, 1, 4)), NONE, rand(3, 2, 5, 6)),
            id="updates-window",
            channels_last=1,
            state_length=5,
            state_window=3,
        ),
        "state_length and a window of states",
    ),
    (linear("other"), "update rule other"),
    (
        conv(rand(2, 8, 3, 5), const(rand(8, 1, 2, 4)), BIAS, id="2d", ndim=2),
        "`ndim`=2 is not translated",
    ),
    (conv(X, TAPS, id="tanh", activation="tanh"), "activation tanh"),
    (
        case("GatedAdd", rand(N, 8), rand(N, 8), rand(N, 4), rand(4, 1), domain=MS, id="projected"),
        "a projected gate in another type than bfloat16",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c: Case, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c: Case, sentence: str, ep: Ep) -> None:
    ep.refuse(c, sentence)


def test_groups_must_fit(ep: Ep) -> None:
    ep.fails(
        case("GatedRMSNorm", rand(2, 30), rand(8), rand(2, 30), domain=MS, id="odd"),
        "last dimension is not a multiple",
    )
