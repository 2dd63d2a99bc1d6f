"""Find the OpenBLAS that products on the CPU backend use, and hand it to the native layer."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from . import _native

PACKAGE: Final = "scipy_openblas32"


def load() -> bool:
    """Load OpenBLAS where MLX's own BLAS is the slow reference one; False when there is none.

    macOS is left alone: MLX uses Accelerate there.
    """
    if sys.platform != "linux":
        return False
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return False
    folder = Path(spec.submodule_search_locations[0], "lib")
    return any(_native.load_blas(str(path)) for path in sorted(folder.glob("libscipy_openblas.so*")))
