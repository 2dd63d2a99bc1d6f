"""Preprocessing of ai.onnx.ml."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.numpy_helper import from_array

from support.case import ML, M, N, case, ints, rand, values
from support.ep import Ep

NAN = float("nan")


def ml(op_type, *inputs, opset=1, **options):
    return case(op_type, *inputs, domain=ML, opset=opset, **options)


CASES = [
    ml("ArrayFeatureExtractor", rand(N, 5), ints([3, 0, 3])),
    ml("ArrayFeatureExtractor", rand(5), ints([3, 0], [1, 4]), id="vector"),
    ml("Binarizer", rand(N, M), threshold=0.3),
    ml("FeatureVectorizer", rand(N, 2), rand(N, 3), inputdimensions=[2, 3], dtypes=["float32"]),
    ml(
        "FeatureVectorizer",
        rand(N, 2),
        rand(N, 4),
        inputdimensions=[3, 3],
        dtypes=["float32"],
        id="fitted",
    ),
    ml(
        "Imputer",
        values([[1.0, NAN, 3.0], [NAN, 5.0, 6.0]]),
        imputed_value_floats=[7.0, 8.0, 9.0],
        replaced_value_float=NAN,
        dtypes=["float32"],
        id="nan",
    ),
    ml(
        "Imputer",
        values([[1, 0], [0, 5]]),
        imputed_value_int64s=[7],
        replaced_value_int64=0,
        dtypes=["int64"],
    ),
    *(
        ml(
            "LabelEncoder",
            values([3, 1, 9]),
            opset=o,
            keys_int64s=[1, 3],
            values_floats=[0.5, 0.7],
            default_float=-2.0,
            dtypes=["int64"],
        )
        for o in (2, 4)
    ),
    ml(
        "LabelEncoder",
        values([3.0, 1.5, 9.0]),
        opset=2,
        keys_floats=[1.5, 3.0],
        values_int64s=[5, 7],
        dtypes=["float32"],
    ),
    ml(
        "LabelEncoder",
        values([3.0, NAN, 9.0]),
        opset=4,
        keys_floats=[NAN, 3.0],
        values_floats=[5.0, 7.0],
        dtypes=["float32"],
        id="nan",
    ),
    ml(
        "LabelEncoder",
        values([3, 1, 9]),
        opset=4,
        keys_tensor=from_array(np.array([1, 3])),
        values_tensor=from_array(np.array([2, 4], np.int16)),
        default_tensor=from_array(np.array([-9], np.int16)),
        dtypes=["int64"],
        id="tensors",
    ),
    *(ml("Normalizer", rand(N, M), norm=n) for n in ("MAX", "L1", "L2")),
    ml("Normalizer", values([[0.0, 0.0], [3.0, 4.0]]), norm="L2", dtypes=["float32"], id="zeros"),
    ml("OneHotEncoder", values([[1, 3], [9, 1]]), cats_int64s=[1, 2, 3]),
    ml("Scaler", rand(N, 3), offset=[1.0, 2.0, 3.0], scale=[0.5, 0.6, 0.7]),
    ml("Scaler", rand(N, M), offset=[1.0], scale=[0.5], id="one"),
]
REFUSED = [
    (ml("Imputer", rand(2, 3), dtypes=["float32"]), "imputed_value_floats is missing"),
    (
        ml("Imputer", rand(2, 3), imputed_value_floats=[1.0, 2.0], dtypes=["float32"]),
        "the number of imputed values is not that of the features",
    ),
    (ml("Normalizer", rand(2, 3), norm="L3"), "norm L3 is unknown"),
    (ml("Normalizer", rand()), "the input is a scalar"),
    (ml("OneHotEncoder", rand(2), cats_strings=["a"]), "the categories are strings"),
    (
        ml("OneHotEncoder", values([1]), cats_int64s=[1], zeros=0),
        "an unknown category has to raise an error",
    ),
    (ml("Scaler", rand(2, 3), scale=[1.0]), "offset and scale are not of the same length"),
    (
        ml("Scaler", rand(2, 3), scale=[1.0, 2.0], offset=[1.0, 2.0]),
        "the number of scales is not that of the features",
    ),
    (
        ml(
            "LabelEncoder",
            values([1]),
            opset=2,
            keys_int64s=[1, 2],
            values_floats=[1.0],
            dtypes=["int64"],
        ),
        "keys and values are not of the same length",
    ),
    (
        ml(
            "LabelEncoder",
            values([1]),
            opset=2,
            keys_int64s=[1, 1],
            values_floats=[1.0, 2.0],
            dtypes=["int64"],
        ),
        "a key is repeated",
    ),
]


@pytest.mark.parametrize("c", CASES, ids=str)
def test_case(c, ep: Ep) -> None:
    ep.check(c)


@pytest.mark.parametrize(("c", "sentence"), REFUSED, ids=str)
def test_refused(c, sentence, ep: Ep) -> None:
    ep.refuse(c, sentence)
