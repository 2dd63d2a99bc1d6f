"""What the library shows to the outside, and that it shares MLX's types."""

from __future__ import annotations

import shutil
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest

import ort_mlx
from ort_mlx import _native

EXPORTS = {"CreateEpFactories", "ReleaseEpFactory", "PyInit__native"}


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_the_library_exports_its_entry_points_only() -> None:
    flags = ["-gU"] if sys.platform == "darwin" else ["-D", "--defined-only"]
    listed = subprocess.run(
        ["nm", *flags, ort_mlx.get_library_path()], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listed.splitlines() if line.strip()]
    strong = {row[-1].removeprefix("_") if sys.platform == "darwin" else row[-1] for row in rows}
    assert strong == EXPORTS


def test_an_array_passes_through_unchanged() -> None:
    given = mx.arange(6, dtype=mx.float16).reshape(2, 3) * 2
    got = _native.pass_array(given)
    assert type(got) is mx.array
    np.testing.assert_array_equal(np.array(got), np.array(given))
    assert _native.pass_array(got + 1).dtype == mx.float16


@pytest.mark.parametrize("wrong", [np.zeros(2), [1.0], 3, None, "text"])
def test_what_is_no_array_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError):
        _native.pass_array(wrong)


def test_versions_are_told() -> None:
    assert _native.COMPILED_MLX_VERSION == _native.mlx_version() == mx.__version__
    assert _native.MINIMUM_ORT_MINOR == 24
    assert _native.NANOBIND_VERSION
