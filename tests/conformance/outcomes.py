"""What a trial came to, and when two outputs are the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

PASSED: Final = "passed"
WRONG: Final = "wrong"  # it ran, and an output is not what it should be
REFUSED: Final = "refused"  # no session: no kernel, or the model is not valid at its opset
FAILED: Final = "failed"  # the Run was an error
CRASHED: Final = "crashed"
HUNG: Final = "hung"
SKIPPED: Final = "skipped"  # Python cannot give ORT the values, or the model does not fit the opset

FULLY: Final = "fully on MLX"
PARTLY: Final = "partly on MLX"
ELSEWHERE: Final = "on the CPU provider"
FOLDED: Final = "nothing left to run"


@dataclass(frozen=True)
class Outcome:
    """What one trial came to, on ORT CPU and with our provider.

    Attributes:
        cpu: what ORT's CPU provider makes of it.
        mlx: what a session with our provider makes of it.
        detail: what went wrong.
        on_mlx: how many nodes ran on MLX.
        elsewhere: how many did not.
        reasons: operator and reason of the nodes left to the CPU provider.
        common: whether all tensors are of dtypes that MLX has.
    """

    suite: str
    name: str
    op_type: str
    domain: str = ""
    opset: int = 0
    cpu: str = SKIPPED
    mlx: str = SKIPPED
    detail: str = ""
    on_mlx: int = 0
    elsewhere: int = 0
    reasons: tuple[tuple[str, str], ...] = ()
    common: bool = False

    @property
    def placement(self) -> str:
        """Where the nodes of the model went."""
        if not self.on_mlx:
            return ELSEWHERE if self.elsewhere else FOLDED
        return PARTLY if self.elsewhere else FULLY

    @property
    def is_regression(self) -> bool:
        """Whether only ORT CPU passes."""
        return self.cpu == PASSED and self.mlx not in (PASSED, SKIPPED)

    def __str__(self) -> str:
        at = f" at opset {self.opset}" if self.opset else ""
        return f"{self.name}{at}: {self.mlx} (CPU {self.cpu}), {self.placement}. {self.detail}"


def one_line(error: object, length: int = 300) -> str:
    """The end of an error's text, where ORT puts what happened."""
    text = " ".join(str(error).split())
    return re.sub(r"^.*Status Message: ", "", text)[:length]


def difference(got: Sequence[Any], want: Sequence[Any], rtol: float, atol: float) -> str:
    """How the outputs differ; empty when they are the same. NaN in `want` has to be NaN."""
    if len(got) != len(want):
        return f"{len(got)} outputs, not {len(want)}"
    found = (_difference(g, w, rtol, atol) for g, w in zip(got, want, strict=True))
    return next((f"output {i}: {text}" for i, text in enumerate(found) if text), "")


def _difference(got: Any, want: Any, rtol: float, atol: float) -> str:
    if want is None or got is None:
        return "" if got is want else f"{type(got).__name__}, not {type(want).__name__}"
    if isinstance(want, (list, tuple)):
        return "not a sequence" if not isinstance(got, list) else difference(got, want, rtol, atol)
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    if want.dtype.kind in "OUS":
        return "" if (got.astype(str) == want.astype(str)).all() else "other strings"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, not {want.dtype}"
    if want.dtype.name in ("float16", "bfloat16"):
        rtol, atol = max(rtol, 1e-2), max(atol, 1e-2 if want.dtype.name == "bfloat16" else 1e-3)
    if want.dtype.kind == "V" or want.dtype.name in ("float16", "bfloat16"):
        got, want = got.astype(np.float32), want.astype(np.float32)
    with np.errstate(all="ignore"):
        close = np.isclose(got, want, rtol, atol, equal_nan=want.dtype.kind in "fc")
    if close.all():
        return ""
    where = tuple(int(i) for i in np.argwhere(~close)[0])
    return (
        f"{int((~close).sum())} of {close.size} differ, {got[where]} not {want[where]} at {where}"
    )
