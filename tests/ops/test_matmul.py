"""Matrix products, Einsum and determinants."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from support.case import K, L, M, N, case, const, loose, rand
from support.ep import Ep
from support.strategies import SIZES, broadcastable

SUMS = loose(1e-2, 1e-2, "halves are summed in another order", "float16", "bfloat16")

CASES = [
    case("MatMul", rand(N, K), rand(K, M), tolerance=SUMS),
    case("MatMul", rand(N, 4), const(rand(4, 3)), id="constant", tolerance=SUMS),
    case("MatMul", rand(N, 1, M, K), rand(2, K, L), id="batches", tolerance=SUMS),
    case("MatMul", rand(K), rand(K, M), id="vector-first", tolerance=SUMS),
    case("MatMul", rand(N, M, K), rand(K), id="vector-last", tolerance=SUMS),
    case("MatMul", rand(K), rand(K), id="vectors", tolerance=SUMS),
    case("MatMul", rand(N, 0), rand(0, M), id="no-sum"),
    case("Gemm", rand(N, K), rand(K, M), rand(M), opset=7, id="old", tolerance=SUMS),
    *(
        case(
            "Gemm",
            rand(*((K, N) if ta else (N, K))),
            rand(*((M, K) if tb else (K, M))),
            rand(N, 1),
            transA=ta,
            transB=tb,
            alpha=0.5,
            beta=2.0,
            tolerance=SUMS,
            dtypes=["float32", "float64", "float16", "bfloat16"],
        )
        for ta in (0, 1)
        for tb in (0, 1)
    ),
    case(
        "Gemm",
        rand(N, 4),
        const(rand(3, 4)),
        const(rand(3)),
        transB=1,
        id="constants",
        tolerance=SUMS,
    ),
    case("Gemm", rand(N, K), rand(K, M), oldest=11, id="no-bias", tolerance=SUMS),
    case("Gemm", rand(N, K), rand(K, M), rand(), alpha=2.0, id="scalar-bias", tolerance=SUMS),
    *(
        case("Einsum", *inputs, equation=equation, tolerance=SUMS, id=equation.replace("->", "="))
        for equation, inputs in {
            "ij,jk->ik": (rand(N, K), rand(K, M)),
            "bij,bjk": (rand(N, M, K), rand(N, K, L)),
            "...ij,jk->...ik": (rand(N, 2, M, K), rand(K, L)),
            "ii->i": (rand(N, N),),
            "ij->ji": (rand(N, M),),
            "ij->": (rand(N, M),),
            "aaa->a": (rand(3, 3, 3),),
            "ab,b->a": (rand(N, 0), rand(0)),
            "i,j,k->ijk": (rand(N), rand(M), rand(K)),
            "bhid,bhjd->bhij": (rand(2, N, M, K), rand(2, N, L, K)),
        }.items()
    ),
    case("Det", rand(N, 3, 3)),
    case("Det", rand(4, 4), id="matrix"),
]
REFUSED = [
    (
        case("Gemm", rand(2, 3), rand(3, 2), rand(2), alpha=0.5, dtypes=["int32"]),
        "alpha or beta is not a whole number and the inputs are integers",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)


@given(
    batches=broadcastable(2, max_rank=2),
    rows=SIZES,
    inner=SIZES,
    columns=SIZES,
    vector=st.sampled_from("  ab"),
)
def test_matmul_broadcasts(batches, rows, inner, columns, vector, ep: Ep) -> None:
    a, b = ((*batches[0], rows, inner), (*batches[1], inner, columns))
    a, b = ((inner,) if vector == "a" else a), ((inner,) if vector == "b" else b)
    ep.check_one(case("MatMul", rand(*a), rand(*b), id="any"), 13, "float32")


@st.composite
def einsums(draw):
    """An equation, and the shapes of its operands."""
    # ORT's own kernel divides by zero on some empty operands: these are a case of their own.
    sizes = {label: draw(st.integers(1, 4)) for label in "abcd"}
    label = st.sampled_from("abcd")
    terms = draw(st.lists(st.lists(label, max_size=3), min_size=1, max_size=3))
    used = sorted({name for term in terms for name in term})
    kept = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    given = ",".join("".join(term) for term in terms)
    shapes = [tuple(sizes[name] for name in term) for term in terms]
    return given + draw(st.sampled_from(["", f"->{''.join(kept)}"])), shapes


@given(c=einsums(), dtype=st.sampled_from(["float32", "int64"]))
def test_einsum(c, dtype, ep: Ep) -> None:
    equation, operands = c
    made = case("Einsum", *(rand(*s) for s in operands), equation=equation, id="any")
    ep.check_one(made, 12, dtype)
