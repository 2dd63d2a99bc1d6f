"""onnxruntime-genai generates on MLX what it generates on ORT's CPU provider."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ort_mlx
from ort_mlx.genai import on_mlx
from support.tiny_decoder import VOCABULARY, write_decoder

og = pytest.importorskip("onnxruntime_genai")

PROMPT, OTHER = [1, 5, 9, 40, 33, 2, 77, 8], [1, 60, 61, 62, 7, 7, 3, 11]
Search = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("genai") / "tiny")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    config = og.Config(str(folder))
    config.clear_providers()
    return og.Model(config)


@pytest.fixture
def ours(folder: Path) -> Any:
    return og.Model(ort_mlx.genai_config(folder, device="cpu"))


@pytest.fixture
def report(ours: Any) -> ort_mlx.Report:
    report = ort_mlx.all_reports()[-1]
    assert (report.left, report.partitions) == ([], 1)
    return report


def generator(model: Any, **search: Any) -> Any:
    settings = og.GeneratorParams(model)
    settings.set_search_options(**{"max_length": 64, "do_sample": False, **search})
    return og.Generator(model, settings)


def written(model: Any, prompts: Sequence[Sequence[int]], **search: Any) -> np.ndarray:
    """The sequences that come of prompts, all of one length."""
    running = generator(model, batch_size=len(prompts), **search)
    running.append_tokens(np.array(prompts if len(prompts) > 1 else prompts[0], np.int32))
    while not running.is_done():
        running.generate_next_token()
    count = len(prompts)
    return np.array([running.get_sequence(i) for i in range(count)])


def test_a_long_generation(ours: Any, theirs: Any, report: ort_mlx.Report) -> None:
    got = written(ours, [PROMPT], max_length=1008, min_length=1008)
    np.testing.assert_array_equal(got, written(theirs, [PROMPT], max_length=1008, min_length=1008))
    assert report.counts["traces"] <= 8, report
    assert report.counts["failures"] == report.counts["eager_runs"] == 0


GROWING: Search = {"past_present_share_buffer": False}
SEARCHES: dict[str, tuple[list[list[int]], Search]] = {
    "shared": ([PROMPT], {}),
    "growing": ([PROMPT], GROWING),
    "batch": ([PROMPT, OTHER], {}),
    "growing batch": ([PROMPT, OTHER], GROWING),
    "beams": ([PROMPT], {"num_beams": 3, "num_return_sequences": 1}),
    "chunks of the prompt": ([PROMPT], {"chunk_size": 3}),
    "padded on the left": ([PROMPT, [0, 0, 0, *OTHER[:5]]], {}),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_tokens(ours: Any, theirs: Any, report: ort_mlx.Report, name: str) -> None:
    prompts, search = SEARCHES[name]
    want = written(theirs, prompts, **search)
    assert len(np.unique(want)) > 4
    np.testing.assert_array_equal(written(ours, prompts, **search), want)
    assert report.counts["failures"] == report.counts["eager_runs"] == 0


def rewound(model: Any) -> list[int]:
    running = generator(model)
    running.append_tokens(np.array(PROMPT, np.int32))
    for _ in range(20):
        running.generate_next_token()
    running.rewind_to(12)
    running.append_tokens(np.array(OTHER[1:], np.int32))
    while not running.is_done():
        running.generate_next_token()
    return list(running.get_sequence(0))


def test_rewinding(ours: Any, theirs: Any) -> None:
    assert rewound(ours) == rewound(theirs)


def interleaved(model: Any) -> list[list[int]]:
    running = [generator(model) for _ in range(3)]
    for i, one in enumerate(running):
        one.append_tokens(np.array((PROMPT, OTHER, PROMPT[:3])[i], np.int32))
    while not all(one.is_done() for one in running):
        for one in running:
            if not one.is_done():
                one.generate_next_token()
    return [list(one.get_sequence(0)) for one in running]


def test_generations_that_take_turns(ours: Any, theirs: Any) -> None:
    assert interleaved(ours) == interleaved(theirs)


def test_logits(ours: Any, theirs: Any) -> None:
    rows = []
    for model in (ours, theirs):
        running = generator(model)
        running.append_tokens(np.array(PROMPT, np.int32))
        rows.append(running.get_logits())
    assert rows[0].shape[-1] == VOCABULARY
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-4, atol=1e-5)


def test_every_part_of_a_model_is_on_mlx() -> None:
    made = on_mlx(
        {
            "model": {
                "decoder": {"pipeline": [{"first": {"session_options": {"log_id": "a"}}}]},
                "encoder": {"session_options": {"provider_options": [{"cuda": {}}]}},
                "vision": {"filename": "v.onnx", "session_options": {"intra_op_num_threads": 3}},
            }
        },
        {"device": "auto"},
    )["model"]
    wanted = [{"MLXExecutionProvider": {"device": "auto"}}]
    assert made["decoder"]["session_options"]["provider_options"] == wanted
    first = made["decoder"]["pipeline"][0]["first"]["session_options"]
    assert first == {"log_id": "a", "provider_options": wanted}
    assert made["encoder"]["session_options"]["provider_options"] == wanted
    assert made["vision"]["session_options"]["provider_options"] == [
        {"MLXExecutionProvider": {"threads": "3", "device": "auto"}}
    ]


def test_a_folder_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ort_mlx.OrtMlxError, match=r"has no genai_config\.json"):
        ort_mlx.genai_config(tmp_path)
    (tmp_path / "genai_config.json").write_text("{")
    with pytest.raises(ort_mlx.OrtMlxError, match="cannot be read"):
        ort_mlx.genai_config(tmp_path)
    decoders: list[Any] = [None, 1, {"session_options": None}, {"session_options": []}]
    for made in ([], {"model": None}, *({"model": {"decoder": d}} for d in decoders)):
        (tmp_path / "genai_config.json").write_text(json.dumps(made))
        with pytest.raises(ort_mlx.OrtMlxError, match="is not a configuration"):
            ort_mlx.genai_config(tmp_path)
    with pytest.raises(ort_mlx.OptionError, match="unknown option 'devise'"):
        ort_mlx.genai_config(tmp_path, devise="cpu")
