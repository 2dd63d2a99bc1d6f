"""Programs around Silero VAD find the same speech with `everywhere` around them."""

from __future__ import annotations

import numpy as np
import pytest

import ort_mlx
from zoo import speech

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore"),  # other people's
]


def test_faster_whisper() -> None:
    vad = pytest.importorskip("faster_whisper.vad", reason="the group `clients` is not installed")
    vad.get_vad_model.cache_clear()
    plain = vad.get_speech_timestamps(speech())
    vad.get_vad_model.cache_clear()
    with ort_mlx.everywhere():
        model = vad.get_vad_model()
        found = vad.get_speech_timestamps(speech())
    vad.get_vad_model.cache_clear()
    assert found == plain
    assert found
    report = ort_mlx.report(model.session)
    assert (report.left, report.partitions) == ([], 1)


def test_silero_vad() -> None:
    silero = pytest.importorskip("silero_vad", reason="the group `clients-torch` is not installed")
    import torch

    sound = torch.from_numpy(np.array(speech()))
    plain = silero.get_speech_timestamps(sound, silero.load_silero_vad(onnx=True))
    with ort_mlx.everywhere():
        model = silero.load_silero_vad(onnx=True)
    found = silero.get_speech_timestamps(sound, model)
    assert found == plain
    assert found
    report = ort_mlx.report(model.session)
    assert report.left == []
