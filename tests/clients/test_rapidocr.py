"""rapidocr, which makes its own sessions, reads the same text with `everywhere` around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ort_mlx
from zoo import LINE, drawn_line

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore"),  # other people's
]


def _sessions(reader: Any) -> list[Any]:
    return [
        part.session.session
        for part in (reader.text_det, reader.text_cls, reader.text_rec)
        if isinstance(part.session.session, ort.InferenceSession)
    ]


def test_same_text() -> None:
    rapidocr = pytest.importorskip("rapidocr", reason="the group `clients` is not installed")
    image = np.full((120, 420, 3), 255, np.uint8)
    image[36:84, 50:370] = np.asarray(drawn_line(LINE))
    quiet = {"Global.log_level": "error"}
    plain = rapidocr.RapidOCR(params=quiet)(image)
    with ort_mlx.everywhere():
        reader = rapidocr.RapidOCR(params=quiet)
        result = reader(image)  # the sessions are made when they are needed
    assert result.txts == plain.txts
    assert "".join(result.txts).replace(" ", "") == LINE.replace(" ", "")
    assert result.scores == pytest.approx(plain.scores, abs=1e-3)

    reports = [ort_mlx.report(session) for session in _sessions(reader)]
    assert len(reports) == 3
    for report in reports:
        assert report.left == []
        assert report.partitions == 1
