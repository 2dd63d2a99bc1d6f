"""Small torch models of the architectures that people export, with random weights of a fixed seed.

Each recipe gives a module, example inputs and options of torch.onnx.export. MiniLM has its real
weights. Needs the dependency group `genai`; `export_models.py` writes the files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import transformers as hf
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional

from exports import MINILM_WEIGHTS

Recipe = tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]
SENTENCES: Final = (
    "This is a sample sentence to embed.",
    "ONNX Runtime runs its models on MLX, and this sentence is somewhat longer than the other.",
)


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _numbers(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(0))


class Pick(nn.Module):
    """A model of transformers with positional inputs and one field of its result."""

    def __init__(self, model: nn.Module, field: str, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.model, self.field, self.names = model, field, names

    def forward(self, *inputs: Tensor) -> Tensor:
        named = dict(zip(self.names, inputs, strict=True)) if self.names else {}
        result = self.model(**named) if named else self.model(*inputs)
        return getattr(result, self.field)


def _block(inner: int, outer: int, size: int = 3, stride: int = 1) -> nn.Module:
    layer = nn.Conv2d(inner, outer, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outer), nn.SiLU())


class Split(nn.Module):
    """A residual on half of the channels, all parts joined again (C2f of YOLOv8)."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        half = outer // 2
        self.first, self.last = _block(inner, outer, 1), _block(3 * half, outer, 1)
        self.middle = nn.Sequential(_block(half, half), _block(half, half))

    def forward(self, x: Tensor) -> Tensor:
        kept, used = self.first(x).chunk(2, 1)
        return self.last(torch.cat([kept, used, used + self.middle(used)], 1))


class Detector(nn.Module):
    """YOLOv8 in small: two scales, pyramid pooling, boxes from distributions of distances."""

    def __init__(self, width: int = 16, classes: int = 5) -> None:
        super().__init__()
        w, self.classes = width, classes
        self.fine = nn.Sequential(
            _block(3, w, 3, 2), _block(w, 2 * w, 3, 2), Split(2 * w, 2 * w),
            _block(2 * w, 4 * w, 3, 2), Split(4 * w, 4 * w),
        )  # fmt: skip
        self.coarse = nn.Sequential(_block(4 * w, 8 * w, 3, 2), Split(8 * w, 8 * w))
        self.narrow, self.widen = _block(8 * w, 4 * w, 1), _block(16 * w, 8 * w, 1)
        self.pool, self.up = nn.MaxPool2d(5, 1, 2), nn.Upsample(scale_factor=2, mode="nearest")
        self.join_fine, self.join_coarse = Split(12 * w, 4 * w), Split(12 * w, 8 * w)
        self.down = _block(4 * w, 4 * w, 3, 2)
        self.heads = nn.ModuleList(nn.Conv2d(k * w, 64 + classes, 1) for k in (4, 8))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        pools = [self.narrow(self.coarse(fine))]
        for _ in range(3):
            pools.append(self.pool(pools[-1]))
        coarse = self.widen(torch.cat(pools, 1))
        fine = self.join_fine(torch.cat([self.up(coarse), fine], 1))
        coarse = self.join_coarse(torch.cat([self.down(fine), coarse], 1))
        found = zip((fine, coarse), self.heads, (8, 16), strict=True)
        return torch.cat([self._boxes(s, head(s), stride) for s, head, stride in found], 2)

    def _boxes(self, scale: Tensor, scores: Tensor, stride: int) -> Tensor:
        height, width = scale.shape[2:]
        box, kind = scores.flatten(2).split([64, self.classes], 1)
        far = (box.unflatten(1, (4, 16)).softmax(2) * torch.arange(16.0)[:, None]).sum(2)
        rows, columns = torch.arange(height) + 0.5, torch.arange(width) + 0.5
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        centre = torch.stack([x, y]).flatten(1)[None]
        corners = [(centre - far[:, :2]) * stride, (centre + far[:, 2:]) * stride]
        return torch.cat([*corners, kind.sigmoid()], 1)


class BestBoxes(nn.Module):
    """The fifty boxes of the highest scores."""

    def __init__(self) -> None:
        super().__init__()
        self.detector = Detector()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = self.detector(x)
        score, kind = found[:, 4:].max(1)
        best, index = score.topk(50, 1)
        boxes = torch.gather(found[:, :4], 2, index[:, None].expand(-1, 4, -1))
        return boxes, best, torch.gather(kind, 1, index)


class ImageDecoder(nn.Module):
    """What an image autoencoder ends in: transposed convolution, resize, pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.grow = nn.Sequential(
            nn.Conv2d(4, 32, 3, 1, 1), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.GroupNorm(4, 16),
            nn.Upsample(scale_factor=2, mode="bilinear"), nn.InstanceNorm2d(16, affine=True),
            nn.LeakyReLU(0.2), nn.Conv2d(16, 12, 3, 1, 1, padding_mode="reflect"),
            nn.PixelShuffle(2), nn.Tanh(),
        )  # fmt: skip

    def forward(self, latent: Tensor) -> Tensor:
        return self.grow(latent)


class Recurrent(nn.Module):
    """Two layers in both directions, between an embedding and a projection."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed, self.project = nn.Embedding(50, 24), nn.Linear(64, 7)
        self.recur = kind(24, 32, 2, batch_first=True, bidirectional=True)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        rows, state = self.recur(self.embed(tokens))
        return self.project(rows), state[0] if isinstance(state, tuple) else state


class Branch(nn.Module):
    """Two branches, chosen by the data."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        branches = (lambda y: self.one(y).relu(), lambda y: self.two(y).tanh() * 2)
        return torch.cond(x.sum() > 0, *branches, (x,))


class While(nn.Module):
    """A loop whose count is an input."""

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        start = (torch.zeros((), dtype=torch.int64), x)
        return while_loop(
            lambda i, y: i < count, lambda i, y: (i + 1, y * 0.9 + torch.sin(y)), start
        )[1]


class Decay(nn.Module):
    """A scan that carries a decaying sum."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def step(carried: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            carried = carried * 0.5 + torch.tanh(row)
            return carried, carried.clone()

        return scan(step, torch.zeros(4), x)


class Indexing(nn.Module):
    """Sorting, scattering, rolling, windows and the rest of what indexing exports to."""

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        spread = torch.zeros(2, 5, 6).scatter_add(1, index[:, :, None].expand(-1, -1, 6), x)
        moved = (x.roll(1, 1), x.flip(1), x.unfold(2, 3, 1), functional.pad(x, (1, 2), value=3.0))
        sums = (x.cumsum(-1), x.std(-1), x.amax((1, 2)), torch.einsum("bij,bkj->bik", x, x))
        chosen = (x.argmax(-1), functional.one_hot(index, 5), torch.where(x > 0, x, x.exp() - 1))
        shaped = (x.clamp(-0.5, 0.5), (x * 3).floor() % 2, torch.triu(x), torch.nonzero(index > 2))
        return (*x.sort(-1, descending=True), spread, *moved, *sums, *chosen, *shaped)


def _minilm(attention: str = "eager", **options: Any) -> Recipe:
    folder = MINILM_WEIGHTS.path(str(Path(MINILM_WEIGHTS.files[0]).parent))
    model = hf.AutoModel.from_pretrained(folder, attn_implementation=attention).float()
    words = hf.AutoTokenizer.from_pretrained(folder)(
        list(SENTENCES), padding=True, return_tensors="pt"
    )
    names = ("input_ids", "attention_mask", "token_type_ids")
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")}
    options = options or {"dynamic_shapes": ((axes,) * 3,)}
    module = Pick(model, "last_hidden_state", names)
    return module, tuple(words[n] for n in names), options


def _minilm_torchscript() -> Recipe:
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch", 1: "seq"} for name in (*names, "last_hidden_state")}
    return _minilm(
        dynamo=False, opset_version=17, input_names=names, output_names=["last_hidden_state"],
        dynamic_axes=axes,
    )  # fmt: skip


def _with_opset_23(recipe: Recipe) -> Recipe:
    module, inputs, options = recipe
    return module, inputs, {**options, "opset_version": 23}


def _classifier(kind: str, size: int, **settings: Any) -> Recipe:
    config = getattr(hf, f"{kind}Config")(num_labels=10, **settings)
    module = Pick(getattr(hf, f"{kind}ForImageClassification")(config), "logits")
    axes = (({0: torch.export.Dim("batch")},),)
    return module, (_random(2, 3, size, size),), {"dynamic_shapes": axes}


def _vit() -> Recipe:
    layers = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
    return _classifier("ViT", 64, intermediate_size=192, image_size=64, patch_size=8, **layers)


def _recurrent(kind: type[nn.RNNBase], **options: Any) -> Recipe:
    return Recurrent(kind), (_numbers(50, 2, 12),), options


def _recurrent_torchscript(kind: type[nn.RNNBase]) -> Recipe:
    axes = {name: {0: "batch", 1: "seq"} for name in ("x", "y")}
    return _recurrent(
        kind, dynamo=False, opset_version=17, input_names=["x"], output_names=["y", "h"],
        dynamic_axes=axes,
    )  # fmt: skip


def _whisper() -> Recipe:
    sides = ("encoder", "decoder")
    config = hf.WhisperConfig(
        d_model=64, num_mel_bins=80, max_source_positions=100, vocab_size=512,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        **{f"{s}_layers": 2 for s in sides}, **{f"{s}_attention_heads": 4 for s in sides},
        **{f"{s}_ffn_dim": 128 for s in sides},
    )  # fmt: skip
    return Pick(hf.WhisperModel(config).encoder, "last_hidden_state"), (_random(1, 80, 200),), {}


RECIPES: Final[dict[str, Callable[[], Recipe]]] = {
    "minilm": _minilm,
    "minilm_sdpa": lambda: _minilm("sdpa"),
    "minilm_opset23": lambda: _with_opset_23(_minilm("sdpa")),
    "minilm_torchscript": _minilm_torchscript,
    "vit": _vit,
    "vit_opset23": lambda: _with_opset_23(_vit()),
    "resnet": lambda: _classifier(
        "ResNet", 64, embedding_size=16, hidden_sizes=[32, 64, 96, 128], depths=[2, 2, 2, 2]
    ),
    "mobilenet_v2": lambda: _classifier("MobileNetV2", 96, depth_multiplier=0.35, image_size=96),
    "detector": lambda: (Detector(), (_random(1, 3, 128, 128),), {}),
    "detector_best_boxes": lambda: (BestBoxes(), (_random(1, 3, 128, 128),), {}),
    "image_decoder": lambda: (ImageDecoder(), (_random(1, 4, 16, 16),), {}),
    "whisper_encoder": _whisper,
    "lstm": lambda: _recurrent(nn.LSTM),
    "lstm_torchscript": lambda: _recurrent_torchscript(nn.LSTM),
    "gru_torchscript": lambda: _recurrent_torchscript(nn.GRU),
    "rnn_torchscript": lambda: _recurrent_torchscript(nn.RNN),
    "branch": lambda: (Branch(), (_random(3, 8),), {}),
    "while": lambda: (While(), (_random(3, 4), torch.tensor(5)), {}),
    "scan": lambda: (Decay(), (_random(6, 4),), {}),
    "indexing": lambda: (Indexing(), (_random(2, 4, 6), _numbers(5, 2, 4)), {}),
}
