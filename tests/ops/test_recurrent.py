"""RNN, GRU and LSTM."""

from __future__ import annotations

import pytest

from support.case import Dim, N, case, const, ints, loose, omitted, rand
from support.ep import Ep

T = Dim("T", (4, 6))
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STATES = {"RNN": 1, "GRU": 1, "LSTM": 2}
SUMS = loose(1e-3, 1e-4, "gates are approximated differently", "float32")
FLOATS = ["float32"]


def cell(op_type, *more, directions=1, x=None, id="", dtypes=FLOATS, **options):
    """A cell of hidden size 3 over inputs of size 2, with constant weights."""
    g = GATES[op_type]
    return case(
        op_type,
        rand(T, N, 2) if x is None else x,
        const(rand(directions, g * 3, 2)),
        const(rand(directions, g * 3, 3)),
        *more,
        outputs=1 + STATES[op_type],
        hidden_size=3,
        tolerance=SUMS,
        id=id,
        dtypes=dtypes,
        **options,
    )


def bias(op_type, directions=1):
    return const(rand(directions, 2 * GATES[op_type] * 3))


CASES = [
    *(cell(op, id=f"{op}-plain") for op in GATES),
    *(cell(op, bias(op), id="opset7", opset=7) for op in GATES),
    *(cell(op, bias(op), direction="reverse", id="reverse") for op in GATES),
    *(
        cell(
            op,
            bias(op, 2),
            ints([4, 2, 3], dtype="int32"),
            rand(2, 3, 3),
            directions=2,
            direction="bidirectional",
            x=rand(4, 3, 2),
            id="bidirectional",
        )
        for op in GATES
    ),
    *(cell(op, bias(op), omitted(), rand(1, N, 3), clip=0.5, id="clip") for op in GATES),
    cell("GRU", bias("GRU"), linear_before_reset=1, id="linear"),
    cell(
        "LSTM",
        bias("LSTM"),
        omitted(),
        rand(1, N, 3),
        rand(1, N, 3),
        const(rand(1, 9)),
        id="peepholes",
    ),
    cell("LSTM", bias("LSTM"), input_forget=1, id="coupled"),
    cell(
        "LSTM",
        bias("LSTM"),
        activations=["HardSigmoid", "Softsign", "Tanh"],
        activation_alpha=[0.3],
        activation_beta=[0.4],
        id="activations",
    ),
    cell("RNN", bias("RNN"), activations=["LeakyRelu"], activation_alpha=[0.2], id="leaky"),
    cell(
        "GRU",
        bias("GRU"),
        activations=["Sigmoid", "Affine"],
        activation_alpha=[0.7],
        activation_beta=[0.1],
        id="affine",
    ),
]
REFUSED = [
    (cell("RNN", direction="sideways", id="direction"), "direction sideways is unknown"),
    (cell("GRU", activations=["Sigmoid", "Cosine"], id="unknown"), "an activation is unknown"),
    (cell("LSTM", activations=["Sigmoid"], id="few"), "activations does not hold 3 names"),
    (cell("RNN", clip=-1.0, id="negative"), "clip is not positive"),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
