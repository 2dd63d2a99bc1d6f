"""Where the references disagree, whom we follow, and the sentence of the standard that decides.

An entry names the cases it is about by operator and a part of their id. A test asserts that each
entry still is a dispute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from support.case import ML, Case

ORT: Final = "ONNX Runtime"
ONNX: Final = "the ONNX reference"


@dataclass(frozen=True)
class Dispute:
    """One disagreement.

    Attributes:
        op_type: the operator.
        follow: the reference that is right.
        why: what the specification says, or what else decides.
        part: a part of the id of the cases.
        dtypes: only these dtypes under test; all when empty.
        domain: the operator's.
        opset: only cases of this opset.
    """

    op_type: str
    follow: str
    why: str
    part: str = ""
    dtypes: tuple[str, ...] = ()
    domain: str = ""
    opset: int | None = None

    def covers(self, c: Case, dtype: str) -> bool:
        """Whether a run of a case is one of those disputed."""
        return (
            (self.domain, self.op_type) == (c.domain, c.op_type)
            and self.part in str(c)
            and self.opset in (None, c.opset)
            and (not self.dtypes or dtype in self.dtypes)
        )


DISPUTES: Final[tuple[Dispute, ...]] = (
    Dispute(
        "Sign",
        ONNX,
        "the sign of NaN is NaN; ORT's half kernel alone says 0",
        "edges",
        ("float16",),
    ),
    Dispute(
        "Shrink",
        ONNX,
        "the formula is exact; ORT's function body rounds to float32",
        "",
        ("float64",),
    ),
    *(
        Dispute(
            op, ONNX, "a NaN is the extreme, as in numpy; ORT's answer depends on its place", "-nan"
        )
        for op in ("ReduceMax", "ReduceMin")
    ),
    *(
        Dispute(
            op,
            ORT,
            "before version 13 the axes from `axis` on are taken together",
            "-flattened-axis",
        )
        for op in ("Softmax", "LogSoftmax", "Hardmax")
    ),
    *(
        Dispute(op, ORT, "no text says how a float is rounded to so few bits", f"{t}-rounded")
        for op in ("Cast", "CastLike")
        for t in ("int4", "int2")
    ),
    Dispute("Cast", ONNX, "what rounds to more than FLT_MAX is infinite", "float8e5m2-edges0"),
    Dispute("Cast", ONNX, "what is beyond FLT_MAX is NaN, from 480 on too", "float8e4m3fn-beyond"),
    Dispute("Cast", ORT, "powers saturate below E8M0_MIN and above E8M0_MAX, or are NaN", "power"),
    Dispute("BatchNormalization", ORT, "epsilon is added to the variance", "epsilon", opset=9),
    Dispute("DynamicQuantizeLinear", ORT, "a range of zero leaves the scale open", "zeros"),
    Dispute(
        "Attention",
        ONNX,
        "the causal mask starts at the upper left, behind the past; ORT shows one query all",
        "causal-single-query",
    ),
    Dispute("LpNormalization", ORT, "the 1-norm is the sum of absolute values", "p=1"),
    Dispute("MaxPool", ORT, "SAME has ceil(size / stride) outputs", "SAME_LOWER"),
    *(
        Dispute(op, ORT, "the last window may reach into the end padding", "-last-window")
        for op in ("AveragePool", "MaxPool")
    ),
    Dispute("MaxUnpool", ORT, "no text says how indices relate to output_shape", "output-shape"),
    Dispute("LabelEncoder", ORT, "a NaN among the keys means every NaN", "-nan", domain=ML),
    Dispute(
        "LinearClassifier", ORT, "the scores of two classes are s and -s", "-binary", domain=ML
    ),
    Dispute("LinearRegressor", ORT, "intercepts are optional", "-targets", domain=ML),
    Dispute(
        "Normalizer",
        ORT,
        "MAX divides by max(X), not by the largest magnitude",
        "norm=MAX",
        domain=ML,
    ),
    Dispute(
        "TreeEnsembleClassifier",
        ORT,
        "the label is of the best class with votes; two classes score s and -s",
        domain=ML,
    ),
    Dispute("DeformConv", ORT, "the reference samples in float32", dtypes=("float64",)),
    Dispute("Resize", ORT, "pytorch_half_pixel puts a single output at 0", "-one-output"),
    Dispute("RoiAlign", ORT, "the half pixel came with version 16", opset=10),
    Dispute("Scaler", ORT, "the output is a float tensor", dtypes=("int32", "int64"), domain=ML),
    *(
        Dispute(
            op,
            ORT,
            "the reference has neither sequence_lens, clip, input_forget nor activations",
            part,
        )
        for op, parts in {
            "RNN": ("-bidirectional", "-clip"),
            "GRU": ("-bidirectional", "-clip", "-affine"),
            "LSTM": ("-bidirectional", "-clip", "-coupled", "-activations"),
        }.items()
        for part in parts
    ),
    Dispute("Unique", ORT, "slices keep their other dimensions", "unsorted-axis"),
    Dispute("Slice", ORT, "a start left of the axis is clamped to 0", "-left-of-the-axis"),
    Dispute("Slice", ONNX, "an end right of the axis is clamped to dim-1", "-right-of-the-axis"),
)


def followed(c: Case, dtype: str) -> str | None:
    """The reference to follow in a run that is disputed."""
    return next((d.follow for d in DISPUTES if d.covers(c, dtype)), None)
