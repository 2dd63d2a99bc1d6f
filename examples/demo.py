"""`make demo`: rapidocr reads a scanned page through ONNX Runtime on MLX, checked against ORT CPU.

rapidocr makes its own sessions and knows nothing of ort-mlx: `ort_mlx.everywhere()` does it all.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import rapidocr
from rich.console import Console
from rich.table import Table

import ort_mlx

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
from zoo import picture

SETTINGS = {"Global.log_level": "error", "Det.limit_type": "max", "Det.limit_side_len": 1200}
console = Console(highlight=False)


def read(image: Any) -> tuple[Any, Any, float]:
    """Read the image; returns the reader, its result and the seconds it took, loading included."""
    start = time.perf_counter()
    reader = rapidocr.RapidOCR(params=SETTINGS)
    result = reader(image)
    return reader, result, time.perf_counter() - start


def main() -> int:
    """Run the demo; returns 0 when both providers read the same."""
    page = picture("page")
    page = page.resize((page.width * 2, page.height * 2))
    image = np.asarray(page)[..., ::-1].copy()
    console.print(f"reading a scanned page of {page.width}x{page.height} pixels")
    with console.status("on ONNX Runtime's CPU provider ..."):
        _, theirs, cpu_seconds = read(image)
    with console.status("on MLX (a minute or two without a GPU) ..."), ort_mlx.everywhere():
        reader, ours, mlx_seconds = read(image)

    console.rule("what MLX reads")
    for line in ours.txts:
        console.print(line, markup=False)

    console.rule("where the nodes run")
    parts = {"detect": reader.text_det, "turn": reader.text_cls, "recognise": reader.text_rec}
    for name, part in parts.items():
        session = part.session.session
        assert isinstance(session, ort.InferenceSession)
        console.print(f"{name:>10}  {ort_mlx.report(session).line()}", markup=False)

    console.rule("side by side")
    table = Table("", "CPUExecutionProvider", ort_mlx.get_ep_name(), box=None)
    table.add_row("lines of text", str(len(theirs.txts)), str(len(ours.txts)))
    table.add_row("seconds, loading included", f"{cpu_seconds:.2f}", f"{mlx_seconds:.2f}")
    same = ours.txts == theirs.txts
    apart = max(abs(a - b) for a, b in zip(ours.scores, theirs.scores, strict=True)) if same else 1
    table.add_row("text", "", "the same" if same else "[red]another one[/]")
    table.add_row("confidence", "", f"within {apart:.1e}")
    console.print(table)
    return 0 if same and apart < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
