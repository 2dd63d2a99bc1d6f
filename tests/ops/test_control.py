"""If, Loop and Scan."""

from __future__ import annotations

import onnx.parser
import pytest

from support.case import M, N, case, const, ints, omitted, rand, values
from support.ep import Ep

body = onnx.parser.parse_graph

THEN = body("then () => (float[A, B] y) { y = Constant<value = float[1, 2] {1, 2}>() }")
ELSE = body("otherwise () => (float[A, B] y) { y = Constant<value = float[2, 1] {3, 4}>() }")
COUNT = body("""
count (int64 i, bool going, float[P] x) => (bool more, float[P] twice, float[P] row) {
    more = Identity(going)
    step = Cast<to = 1>(i)
    twice = Add(x, x)
    row = Add(twice, step)
}""")
UNTIL = body("""until (int64 i, bool going, float x) => (bool more, float twice) {
    limit = Constant<value = float {20.0}>()
    twice = Add(x, x)
    more = Less(twice, limit)
}""")
SUM = body("""total (float[Q] state, float[Q] x) => (float[Q] next, float[Q] out) {
    next = Add(state, x)
    out = Mul(next, x)
}""")
SAME = [
    body(f"branch () => (float[2] y) {{ y = Constant<value = float[2] {{{v}, 2}}>() }}")
    for v in (1, 5)
]
FLOATS = ["float32"]

CASES = [
    case("If", values(True, False, dtype="bool"), oldest=11, then_branch=THEN, else_branch=ELSE),
    case(
        "If",
        values(True, False, dtype="bool"),
        then_branch=SAME[0],
        else_branch=SAME[1],
        id="same-shape",
    ),
    case("Loop", ints(3, 5), omitted(), rand(M), body=COUNT, outputs=2, dtypes=FLOATS, id="for"),
    case(
        "Loop",
        const(4),
        const(True, "bool"),
        rand(M),
        body=COUNT,
        outputs=2,
        dtypes=FLOATS,
        id="constant",
    ),
    case("Loop", ints(0), omitted(), rand(3), body=COUNT, outputs=2, dtypes=FLOATS, id="never"),
    case(
        "Loop",
        omitted(),
        values(True, dtype="bool"),
        values(1.0, 3.0),
        body=UNTIL,
        dtypes=FLOATS,
        id="while",
    ),
    case("Scan", rand(M), rand(N, M), body=SUM, num_scan_inputs=1, outputs=2, dtypes=FLOATS),
    case(
        "Scan",
        rand(M),
        rand(M, N),
        body=SUM,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[-1],
        scan_input_directions=[1],
        scan_output_directions=[1],
        outputs=2,
        dtypes=FLOATS,
        id="axes",
    ),
    *(
        case(
            "Scan",
            lengths,
            rand(N, M),
            rand(N, 4, M),
            body=SUM,
            opset=8,
            num_scan_inputs=1,
            directions=[backwards],
            outputs=2,
            dtypes=FLOATS,
            id=name,
        )
        for name, lengths, backwards in (
            ("batch", omitted(), 0),
            ("batch-backwards", omitted(), 1),
            ("lengths", ints([4, 2, 3], [1, 4, 4, 2, 3]), 1),
        )
    ),
]
REFUSED = [
    (
        case(
            "Scan",
            omitted(),
            rand(0, 2),
            rand(0, 4, 2),
            body=SUM,
            opset=8,
            num_scan_inputs=1,
            outputs=2,
            dtypes=FLOATS,
        ),
        "the batch is empty",
    ),
    (
        case(
            "Scan",
            omitted(),
            omitted(),
            rand(3, 4, 2),
            body=SUM,
            opset=8,
            num_scan_inputs=1,
            outputs=2,
            dtypes=FLOATS,
        ),
        "an input is omitted",
    ),
    (
        case("Scan", omitted(), rand(3, 2), body=SUM, num_scan_inputs=1, outputs=2, dtypes=FLOATS),
        "an input is omitted",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
