"""Find speech in a recording, frame by frame, with Silero's voice activity detector on MLX.

`python examples/silero_vad.py [RECORDING.wav]`; without a file, ten seconds of sample speech.
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np
import onnxruntime as ort

import ort_mlx

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
from zoo import MODELS, speech

RATE, FRAME, CONTEXT = 16000, 512, 64


def load(path: str) -> np.ndarray:
    """Samples of a 16 kHz, 16 bit, one channel recording."""
    with wave.open(path) as recording:
        if recording.getparams()[:3] != (1, 2, RATE):
            raise SystemExit(f"{path} is not a 16 kHz, 16 bit recording with one channel")
        samples = np.frombuffer(recording.readframes(recording.getnframes()), np.int16)
    return samples.astype(np.float32) / 32768


def main() -> None:
    """Print one line for each stretch of speech."""
    samples = load(sys.argv[1]) if len(sys.argv) > 1 else speech()
    model = next(m for m in MODELS if m.name == "silero_vad").path
    session = ort.InferenceSession(model, ort_mlx.enable(ort.SessionOptions()))
    print(ort_mlx.report(session).line())

    state = np.zeros((2, 1, 128), np.float32)
    padded = np.pad(samples, (CONTEXT, 0))
    spoken = []
    for start in range(0, len(samples) - FRAME + 1, FRAME):
        frame = padded[start : start + FRAME + CONTEXT][None]
        feed = {"input": frame, "state": state, "sr": np.array(RATE)}
        probability, state = session.run(None, feed)
        spoken.append(bool(probability[0, 0] > 0.5))
    edges = np.flatnonzero(np.diff([False, *spoken, False]))
    for begin, end in edges.reshape(-1, 2) * FRAME / RATE:
        print(f"speech from {begin:5.2f} s to {end:5.2f} s")


if __name__ == "__main__":
    main()
