from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ort_mlx import _native

TESTS = Path(__file__).parents[1]

PRELUDE = """
import sys
import numpy as np
import onnxruntime as ort
import ort_mlx
from core.graphs import *
ort.set_default_logger_severity(4)
x = np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)
def check(session, x=x):
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
"""

Child = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def child() -> Child:
    """Runs code in a process of its own, which has to end well unless `code` says otherwise."""

    def run(
        text: str, *, code: int | None = 0, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
        finished = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", PRELUDE + textwrap.dedent(text)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if code is not None:
            assert finished.returncode == code, finished.stdout + finished.stderr
        assert "nanobind: leaked" not in finished.stderr, finished.stderr
        return finished

    return run


@pytest.fixture(params=_native.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each that this processor has, for the loops on the CPU."""
    _native.use_instruction_set(request.param)
    yield request.param
    _native.use_instruction_set(_native.instruction_sets()[-1])


@pytest.fixture
def x() -> np.ndarray:
    return np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)
