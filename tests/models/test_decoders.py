"""Decoders of many families: whole on MLX, the tokens of ORT CPU, a closure for many steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ort_mlx
from support.decoders import FAMILIES, built, missing
from support.decoding import (
    OTHER_PROMPT,
    PROMPT,
    Decoding,
    decode,
    open_decoder,
    write_without_rounded_activations,
)
from zoo import cache_folder

pytestmark = [
    pytest.mark.models,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
    pytest.mark.filterwarnings("ignore"),  # other people's
]
STEPS = 64
MOST_TRACES = 6  # of 64 steps: the prefill, three steps, and one for all further ones
NOT_BUILT = {("gpt-oss", "int4")}  # only from a checkpoint that is in MXFP4 already
WINDOWED = ("gemma2", "gemma3")  # their caches hold a window, which a growing one is shorter than


@pytest.fixture(scope="module")
def opened() -> dict[tuple[str, str], tuple[Path, Any, Any]]:
    return {}


@pytest.fixture
def decoder(
    request: pytest.FixtureRequest, opened: dict[tuple[str, str], tuple[Path, Any, Any]]
) -> tuple[Path, Any, Any]:
    """The folder, and the sessions on MLX and on ORT CPU."""
    family, precision = request.param
    if (family, precision) not in opened:
        folder = built(family, precision, cache_folder())
        sessions = [open_decoder(folder, on_mlx=on_mlx) for on_mlx in (True, False)]
        opened[family, precision] = (folder, *sessions)
    return opened[family, precision]


def _head(folder: Path) -> int:
    settings = json.loads((folder / "genai_config.json").read_text())
    return int(settings["model"]["decoder"]["head_size"])


def _every(*precisions: str) -> Any:
    pairs = [(f, p) for p in precisions for f in FAMILIES if (f, p) not in NOT_BUILT]
    return pytest.mark.parametrize("decoder", pairs, indirect=True, ids="-".join)


@_every("fp32")
@pytest.mark.parametrize("cache", ["growing", "shared"])
def test_tokens(decoder: tuple[Path, Any, Any], cache: str) -> None:
    folder, ours, theirs = decoder
    if cache == "growing" and folder.name.split("-fp32")[0] in WINDOWED:
        pytest.skip("a windowed cache has a fixed capacity")
    report = ort_mlx.report(ours)
    assert (report.left, report.partitions) == ([], 1)
    before = report.counts["traces"]
    for prompts in ([PROMPT], [PROMPT, OTHER_PROMPT]):
        form = (_head(folder), len(prompts), 128 if cache == "shared" else 0)
        want, wanted = decode(Decoding(theirs, *form), prompts, STEPS)
        got, logits = decode(Decoding(ours, *form), prompts, STEPS)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_allclose(logits, wanted, rtol=1e-3, atol=1e-4)
    assert report.counts["traces"] - before <= 2 * MOST_TRACES, report
    assert not report.failures
    assert not report.eager_reasons


@_every("int4")
def test_quantized(decoder: tuple[Path, Any, Any], tmp_path: Path) -> None:
    """The logits of exact arithmetic on the 4-bit weights."""
    folder, ours, _ = decoder
    report = ort_mlx.report(ours)
    assert (report.left, report.partitions) == ([], 1)
    write_without_rounded_activations(folder, tmp_path / "exact")
    exact = open_decoder(tmp_path / "exact", on_mlx=False)
    want, wanted = decode(Decoding(exact, _head(folder), capacity=128), [PROMPT], STEPS)
    _, logits = decode(Decoding(ours, _head(folder), capacity=128), [PROMPT], STEPS, want)
    np.testing.assert_allclose(logits, wanted, rtol=1e-3, atol=1e-4)


@_every("fp16")
def test_half_precision(decoder: tuple[Path, Any, Any]) -> None:
    """Against the same weights in float32: ORT CPU refuses norms inside GroupQueryAttention."""
    folder, ours, _ = decoder
    assert not ort_mlx.report(ours).left
    whole = built(folder.name.removesuffix("-fp16"), "fp32", cache_folder())
    theirs = open_decoder(whole, on_mlx=False)
    want, wanted = decode(Decoding(theirs, _head(folder), capacity=128), [PROMPT], STEPS)
    got, logits = decode(Decoding(ours, _head(folder), capacity=128), [PROMPT], STEPS, want)
    assert (got == want).mean() >= 0.95
    np.testing.assert_allclose(logits, wanted, atol=2e-2 * np.abs(wanted).max())


@pytest.fixture(scope="module")
def genai() -> Any:
    """onnxruntime-genai with the provider registered; its ONNX Runtime is another than Python's."""
    import onnxruntime_genai as og

    try:
        og.register_execution_provider_library(ort_mlx.get_ep_name(), ort_mlx.get_library_path())
    except RuntimeError as error:  # by other tests of this process
        assert "already registered" in str(error)
    return og


@pytest.mark.parametrize("family", FAMILIES)
def test_genai(genai: Any, family: str) -> None:
    folder = built(family, "fp32", cache_folder())
    written = []
    for options in (None, {"device": "cpu", "strict": "1"}):
        config = genai.Config(str(folder))
        config.clear_providers()
        if options is not None:
            config.append_provider(ort_mlx.get_ep_name())
            for name, value in options.items():
                config.set_provider_option(ort_mlx.get_ep_name(), name, value)
        model = genai.Model(config)
        ways = [_stream, _batch, _append, _chunked, _interleaved]
        if not family.startswith("lfm2"):  # their states cannot go back
            ways.append(_rewind)
        written.append({way.__name__: way(genai, model) for way in ways})
    assert written[0] == written[1]


def _generator(genai: Any, model: Any, batch: int = 1, **options: Any) -> Any:
    made = genai.GeneratorParams(model)
    made.set_search_options(
        max_length=128, min_length=100, do_sample=False, batch_size=batch, **options
    )
    return genai.Generator(model, made)


def _run(generator: Any, steps: int) -> list[int]:
    for _ in range(steps):
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)]


def _stream(genai: Any, model: Any) -> tuple[list[int], str]:
    generator, stream, text = _generator(genai, model), genai.Tokenizer(model).create_stream(), ""
    generator.append_tokens(list(PROMPT))
    for _ in range(STEPS):
        generator.generate_next_token()
        text += stream.decode(generator.get_next_tokens()[0])
    return _run(generator, 0), text


def _batch(genai: Any, model: Any) -> list[list[int]]:
    generator = _generator(genai, model, batch=2)
    generator.append_tokens(np.array([PROMPT, OTHER_PROMPT], np.int32))
    _run(generator, 20)
    return [[int(token) for token in generator.get_sequence(i)] for i in range(2)]


def _append(genai: Any, model: Any) -> list[int]:
    """A prompt in pieces, and a second turn."""
    generator = _generator(genai, model)
    for piece in (PROMPT[:3], PROMPT[3:4], PROMPT[4:]):
        generator.append_tokens(list(piece))
    _run(generator, 10)
    generator.append_tokens([50, 51, 52])
    return _run(generator, 10)


def _chunked(genai: Any, model: Any) -> list[int]:
    generator = _generator(genai, model, chunk_size=4)
    generator.append_tokens([*PROMPT, *OTHER_PROMPT, 60, 61])
    return _run(generator, 10)


def _interleaved(genai: Any, model: Any) -> list[list[int]]:
    pair = [_generator(genai, model) for _ in range(2)]
    for generator, prompt in zip(pair, (PROMPT, OTHER_PROMPT[:5]), strict=True):
        generator.append_tokens(list(prompt))
    for _ in range(12):
        for generator in pair:
            generator.generate_next_token()
    return [_run(generator, 0) for generator in pair]


def _rewind(genai: Any, model: Any) -> list[list[int]]:
    generator = _generator(genai, model)
    generator.append_tokens(list(PROMPT))
    first = _run(generator, 12)
    generator.rewind_to(10)
    generator.append_tokens([33, 44])
    second = _run(generator, 12)
    generator.rewind_to(0)
    generator.append_tokens(list(PROMPT))
    return [first, second, _run(generator, 12)]
