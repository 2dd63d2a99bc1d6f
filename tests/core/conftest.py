from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def x() -> np.ndarray:
    return np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)
