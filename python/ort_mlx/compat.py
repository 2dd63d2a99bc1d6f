"""Checks of the packages around us: each failure is one sentence that says what to install."""

from __future__ import annotations

import importlib
import importlib.metadata
from types import ModuleType
from typing import Any

from .errors import CompatibilityError

MINIMUM_ORT = (1, 24)


def check_mlx(native: ModuleType) -> None:
    """Compare the MLX that was compiled against with the one that is loaded.

    Raises:
        CompatibilityError: they differ; MLX's C++ interface changes between versions.
    """
    compiled, loaded = native.COMPILED_MLX_VERSION, native.mlx_version()
    if compiled != loaded:
        raise CompatibilityError(
            f"ort_mlx was built for mlx {compiled}, but mlx {loaded} is installed; "
            f"run: pip install 'mlx=={compiled}'"
        )


def import_native() -> ModuleType:
    """Load the native module, or say what keeps it from loading.

    Raises:
        CompatibilityError: MLX or its backend is missing, or of another version.
    """
    try:
        native = importlib.import_module("._native", __package__)
    except ImportError as error:
        raise CompatibilityError(_advice(error)) from error
    check_mlx(native)
    return native


def _advice(error: ImportError) -> str:
    text = str(error)
    if "libmlx" in text:
        return (
            f"MLX's backend library is not installed ({text}); on Linux run one of: "
            "pip install 'ort-mlx[cpu]', 'ort-mlx[cuda12]' or 'ort-mlx[cuda13]'"
        )
    if "undefined symbol" in text or "symbol not found" in text:
        return (
            f"the installed MLX is not the one ort_mlx was built for ({text}); "
            f"run: pip install --force-reinstall ort-mlx ({_installed('mlx')})"
        )
    return f"ort_mlx's native module does not load ({text}); reinstall with: pip install ort-mlx"


def _installed(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)} is installed"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} is not installed"


def onnxruntime() -> Any:
    """The onnxruntime module, any flavour.

    Raises:
        CompatibilityError: it is missing or too old.
    """
    wanted = ".".join(str(n) for n in MINIMUM_ORT)
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise CompatibilityError(
            f"ort_mlx needs onnxruntime {wanted} or newer, and none is installed; "
            "run: pip install onnxruntime"
        ) from error
    version = getattr(ort, "__version__", None)
    if version is None or _numbers(version) < MINIMUM_ORT:
        raise CompatibilityError(
            f"ort_mlx needs onnxruntime {wanted} or newer, and found {version or 'a broken one'}; "
            "run: pip install --upgrade onnxruntime"
        )
    return ort


def ort_version() -> tuple[int, int]:
    """The version of the onnxruntime package, such as (1, 32)."""
    return _numbers(onnxruntime().__version__)


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
