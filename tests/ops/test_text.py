"""TfIdfVectorizer over integers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.case import case, rand
from support.ep import Ep


def tf_idf(x=None, **options):
    options = {
        "ngram_counts": [0, 4],
        "ngram_indexes": list(range(7)),
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 0,
        "mode": "TF",
        **options,
    }
    return case("TfIdfVectorizer", rand(3, 12, low=1, high=9) if x is None else x, **options)


WEIGHTS = [0.5, 1.5, 2.0, 0.25, 3.0, 0.75, 1.25]
STRINGS = {k: v for k, v in tf_idf().attributes.items() if k != "pool_int64s"}

CASES = [
    tf_idf(),
    tf_idf(rand(12, low=1, high=9), id="vector"),
    tf_idf(max_skip_count=3, id="skips"),
    tf_idf(mode="IDF", weights=WEIGHTS, id="idf"),
    tf_idf(mode="TFIDF", weights=WEIGHTS, min_gram_length=2, id="tfidf"),
]
REFUSED = [
    (replace(tf_idf(id="no-pool"), attributes={**STRINGS}), "the pool does not hold integers"),
    (tf_idf(mode="BM25"), "mode BM25 is unknown"),
    (
        tf_idf(mode="TF", ngram_indexes=[1, 0, -2, 3, 4, 5, 6]),
        "an n-gram has a negative place in the output",
    ),
    (
        tf_idf(mode="IDF", weights=WEIGHTS, ngram_indexes=[1, 0, 2, 3, 4, 5, 6]),
        "there are weights for n-grams that are not in the order of the output",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
