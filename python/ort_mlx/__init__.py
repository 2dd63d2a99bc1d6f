"""ort-mlx: run ONNX models on Apple MLX, inside ONNX Runtime.

A session is made as always, with options that went through `enable`:

    import onnxruntime as ort
    import ort_mlx

    session = ort.InferenceSession("model.onnx", ort_mlx.enable(ort.SessionOptions()))
    print(ort_mlx.report(session))
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from .compat import import_native
from .errors import CompatibilityError

try:
    import_native()
except CompatibilityError as _error:
    if sys.argv[0] == "-m":  # so it is while `python -m ort_mlx` looks for the program
        sys.exit(f"ort_mlx: {_error}")
    raise

from . import backend

backend.prepare()

from .custom import custom_op  # noqa: E402
from .errors import (  # noqa: E402
    DeviceError,
    InputError,
    OptionError,
    OrtMlxError,
    TranslationError,
)
from .genai import genai_config  # noqa: E402
from .registration import (  # noqa: E402
    cancel,
    devices,
    enable,
    everywhere,
    get_ep_name,
    get_ep_names,
    get_library_path,
    is_registered,
    register,
    report,
    unregister,
    warmup,
)
from .reports import Report  # noqa: E402
from .session import all_reports  # noqa: E402

try:
    __version__ = version("ort-mlx")
except PackageNotFoundError:  # running from a source tree
    __version__ = "0+unknown"

__all__ = [
    "CompatibilityError",
    "DeviceError",
    "InputError",
    "OptionError",
    "OrtMlxError",
    "Report",
    "TranslationError",
    "all_reports",
    "cancel",
    "custom_op",
    "devices",
    "enable",
    "everywhere",
    "genai_config",
    "get_ep_name",
    "get_ep_names",
    "get_library_path",
    "is_registered",
    "register",
    "report",
    "unregister",
    "warmup",
]
