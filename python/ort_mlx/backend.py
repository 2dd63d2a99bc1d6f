"""What MLX's backends need to be set up with before they are used."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import mlx.core as mx

from . import _native

BLAS_PACKAGE: Final = "scipy_openblas32"
TF32_VARIABLE: Final = "MLX_ENABLE_TF32"


def prepare() -> None:
    """Load OpenBLAS for the CPU backend, and keep float32 exact on a GPU.

    MLX computes float32 products in TF32 on CUDA, and on Metal from the M5 on, unless told
    otherwise, which is off by about 1e-3. Set the environment variable MLX_ENABLE_TF32=1 to have
    that.
    """
    load_blas()
    if mx.is_available(mx.gpu):
        os.environ.setdefault(TF32_VARIABLE, "0")


def load_blas() -> bool:
    """Load OpenBLAS where MLX's own BLAS is the slow reference one; False when there is none.

    macOS is left alone: MLX uses Accelerate there.
    """
    if sys.platform != "linux":
        return False
    spec = find_spec(BLAS_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return False
    folder = Path(spec.submodule_search_locations[0], "lib")
    return any(
        _native.load_blas(str(path)) for path in sorted(folder.glob("libscipy_openblas.so*"))
    )
