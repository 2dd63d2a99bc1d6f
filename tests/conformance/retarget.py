"""Moving a model down to an older opset, whose operators real models use."""

from __future__ import annotations

import onnx
import onnx.checker
import onnx.shape_inference
import onnx.version_converter


def retarget(model: onnx.ModelProto, opset: int) -> onnx.ModelProto | None:
    """The model at an older opset; None when it cannot be said there.

    The nodes stay as they are when the older opset has them in this form: their meaning may differ
    there, which is why the answers are ORT's. Otherwise onnx rewrites them, such as an input to the
    attribute that it was.
    """
    as_it_is = onnx.ModelProto()
    as_it_is.CopyFrom(model)
    for i in as_it_is.opset_import:
        if i.domain in ("", "ai.onnx"):
            i.version = opset
    if _is_valid(as_it_is):
        return as_it_is
    try:
        rewritten = onnx.version_converter.convert_version(model, opset)
    except Exception:  # it has no way down
        return None
    return rewritten if _is_valid(rewritten) else None


def _is_valid(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception:  # many types, all of which mean no
        return False
    return True
