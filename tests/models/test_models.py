"""Real models with real inputs: placed as a whole, and the same answers as ORT's CPU provider."""

from __future__ import annotations

from typing import Any

import onnxruntime as ort
import pytest

import ort_mlx
from exports import EXPORTS
from support.placement import RECORD, placement
from zoo import MODELS, Model, compare, speech_frames

pytestmark = pytest.mark.models
MOST_PARTITIONS = 4


def _options() -> Any:
    made = ort.SessionOptions()
    made.log_severity_level = 4
    made.add_session_config_entry(RECORD, "1")
    return made


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(m, marks=[pytest.mark.slow] if m.slow else [], id=m.name)
        for m in (*MODELS, *EXPORTS)
    ],
)
def test_model(model: Model) -> None:
    if model.built and not model.path.exists():
        pytest.skip(f"{model.path} is not built; run: python scripts/export_models.py")
    if not model.path.exists():
        pytest.fail(f"{model.path} is missing; run: python scripts/fetch_models.py --all")
    feed = model.feed()
    ours = ort.InferenceSession(model.path, ort_mlx.enable(_options()), enable_fallback=0)
    report = ort_mlx.report(ours)
    assert report.partitions <= MOST_PARTITIONS
    assert report.taken, report
    on_mlx = [op for op, ep in placement(ours) if ep == ort_mlx.get_ep_name()]
    assert len(on_mlx) == report.taken
    assert all(node.reasons for node in report.left)

    theirs = ort.InferenceSession(model.reference(), _options(), providers=["CPUExecutionProvider"])
    eager = ort.InferenceSession(
        model.path, ort_mlx.enable(_options(), routes=()), enable_fallback=0
    )
    expected = theirs.run(None, feed)
    traces = []
    for session in (ours, ours, eager):
        result = session.run(None, feed)
        difference = compare(model, result, expected)
        assert difference.worst <= 1, difference
        if model.read is not None:
            assert model.read(result, session) == model.read(expected, theirs)
        traces.append(ort_mlx.report(session).counts["traces"])
    counts = ort_mlx.report(ours).counts
    assert traces[0] == traces[1] == counts["misses"], "the second Run traced again"
    assert traces[2] == 0
    assert counts["hits"] == counts["misses"]
    assert bool(counts["eager_runs"]) == model.by_data
    if not model.by_data:
        assert counts["misses"] == report.partitions


def test_streaming_keeps_its_state() -> None:
    """Silero's state goes out and in again for every frame; errors would add up."""
    model = next(m for m in MODELS if m.name == "silero_vad")
    feed = model.feed()
    sessions = [
        ort.InferenceSession(model.path, ort_mlx.enable(_options())),
        ort.InferenceSession(model.path, _options(), providers=["CPUExecutionProvider"]),
    ]
    frames = speech_frames()[:100]
    spoken = []
    for session in sessions:
        state, said = feed["state"], []
        for frame in frames:
            probability, state = session.run(
                None, {"input": frame[None], "state": state, "sr": feed["sr"]}
            )
            said.append(float(probability[0, 0]))
        spoken.append(said)
    assert spoken[0] == pytest.approx(spoken[1], abs=1e-3)
    assert sum(p > 0.5 for p in spoken[0]) > 35
