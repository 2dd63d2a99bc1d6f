"""Write text with onnxruntime-genai on MLX, next to ONNX Runtime's CPU provider.

`python scripts/build_smollm2.py` makes the model, then
`python examples/generate.py [MODEL_FOLDER] [--prompt TEXT] [--tokens N]`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import onnxruntime_genai as og
from rich.console import Console
from rich.table import Table

import ort_mlx

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
from build_smollm2 import model_folder

console = Console(highlight=False)


def load(folder: Path, *, on_mlx: bool) -> og.Model:
    """The model, on MLX or on ONNX Runtime's CPU provider."""
    if on_mlx:
        return og.Model(ort_mlx.genai_config(folder))
    config = og.Config(str(folder))
    config.clear_providers()
    return og.Model(config)


def write(model: og.Model, prompt: str, tokens: int, *, shown: bool) -> tuple[str, float, float]:
    """Generate greedily; returns the text, and tokens per second of prefill and of decode."""
    tokenizer = og.Tokenizer(model)
    message = json.dumps([{"role": "user", "content": prompt}])
    asked = tokenizer.encode(tokenizer.apply_chat_template(message, add_generation_prompt=True))
    settings = og.GeneratorParams(model)
    settings.set_search_options(max_length=len(asked) + tokens, do_sample=False)
    generator, stream, text, count = og.Generator(model, settings), tokenizer.create_stream(), "", 0
    start = time.perf_counter()
    generator.append_tokens(asked)
    generator.generate_next_token()
    first = time.perf_counter()
    while True:
        piece = stream.decode(generator.get_next_tokens()[0])
        text += piece
        if shown:
            console.print(piece, end="", markup=False)
        if generator.is_done():
            break
        generator.generate_next_token()
        count += 1
    return text, len(asked) / (first - start), count / (time.perf_counter() - first)


def main() -> int:
    """Run the example; returns 0 when both providers write the same text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=model_folder())
    parser.add_argument(
        "--prompt", default="What is the capital of France, and what is it known for?"
    )
    parser.add_argument("--tokens", type=int, default=64, help="at most so many")
    given = parser.parse_args()
    if not (given.folder / "genai_config.json").exists():
        parser.error(f"no model in {given.folder}; run: python scripts/build_smollm2.py")
    table = Table("", "tokens/s", "prefill", "decode", "closures traced", box=None)
    texts = []
    for name in (ort_mlx.get_ep_name(), "CPUExecutionProvider"):
        on_mlx = name == ort_mlx.get_ep_name()
        console.rule(name)
        model = load(given.folder, on_mlx=on_mlx)
        for attempt in ("first", "again"):
            text, prefill, decode = write(
                model, given.prompt, given.tokens, shown=attempt == "first"
            )
            traced = str(ort_mlx.all_reports()[-1].counts["traces"]) if on_mlx else ""
            table.add_row(name, attempt, f"{prefill:.1f}", f"{decode:.1f}", traced)
            name = ""
        texts.append(text)
        console.print()
        if on_mlx:
            console.print(ort_mlx.all_reports()[-1].line(), markup=False)
    console.rule("side by side")
    console.print(table)
    same = texts[0] == texts[1]
    console.print("the same text" if same else "[red]another text[/]")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
