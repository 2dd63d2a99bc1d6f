"""Write text with nothing but InferenceSession and numpy, on MLX and on ORT's CPU provider.

`python scripts/build_smollm2.py` makes the model, then
`python examples/generate_plain.py [MODEL_FOLDER] [--prompt TEXT] [--tokens N]`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

import ort_mlx

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
from build_smollm2 import model_folder

END = 2  # SmolLM2's <|im_end|>
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def generate(session: Any, asked: list[int]) -> Iterator[int]:
    """Greedy decoding: each present key and value becomes the past of the next step."""
    names = [output.name for output in session.get_outputs()]
    past = {}
    for entry in session.get_inputs():
        if entry.name.startswith("past"):
            _, heads, _, size = entry.shape
            size = size if isinstance(size, int) else 64  # SmolLM2's builder leaves it open
            kind = np.float16 if "float16" in entry.type else np.float32
            past[entry.name] = np.zeros((1, heads, 0, size), kind)
    tokens, length = asked, 0
    while True:
        length += len(tokens)
        feed = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, length), np.int64),
            **past,
        }
        outputs = dict(zip(names, session.run(None, feed), strict=True))
        past = {name: outputs[name.replace("past_key_values", "present")] for name in past}
        tokens = [int(outputs["logits"][0, -1].argmax())]
        yield tokens[0]


def write(session: Any, tokenizer: Tokenizer, prompt: str, most: int) -> tuple[str, float, float]:
    """The text, and tokens per second of prefill and of decode."""
    asked = tokenizer.encode(CHAT.format(prompt)).ids
    start = time.perf_counter()
    written, first = [], start
    for token in generate(session, asked):
        if not written:
            first = time.perf_counter()
        written.append(token)
        if token == END or len(written) == most:
            break
    last = time.perf_counter()
    text = tokenizer.decode(written)
    return text, len(asked) / (first - start), (len(written) - 1) / max(last - first, 1e-9)


def main() -> int:
    """Run the example; returns 0 when both providers write the same text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=model_folder())
    parser.add_argument(
        "--prompt", default="What is the capital of France, and what is it known for?"
    )
    parser.add_argument("--tokens", type=int, default=64, help="at most so many")
    given = parser.parse_args()
    model = given.folder / "model.onnx"
    if not model.exists():
        parser.error(f"no model in {given.folder}; run: python scripts/build_smollm2.py")
    tokenizer = Tokenizer.from_file(str(given.folder / "tokenizer.json"))
    mlx = ort.InferenceSession(model, ort_mlx.enable(ort.SessionOptions()))
    cpu = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    print(ort_mlx.report(mlx).line())
    texts = []
    for name, session in ((ort_mlx.get_ep_name(), mlx), ("CPUExecutionProvider", cpu)):
        for attempt in ("first", "again"):
            text, prefill, decode = write(session, tokenizer, given.prompt, given.tokens)
            print(
                f"{name}, {attempt}: prefill {prefill:.1f} tokens/s, decode {decode:.1f} tokens/s"
            )
        print(text)
        texts.append(text)
    print(f"closures traced: {ort_mlx.report(mlx).counts['traces']}")
    print("the same text" if texts[0] == texts[1] else "another text")
    return 0 if texts[0] == texts[1] else 1


if __name__ == "__main__":
    sys.exit(main())
