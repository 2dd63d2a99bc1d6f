"""onnxruntime-genai with its models on MLX.

Source: onnxruntime-genai's genai_config.json, where each part of a model (decoder, encoder, vision,
a stage of a pipeline) lists execution providers in its `session_options.provider_options`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from . import registration
from ._native import EP_NAME
from .errors import CompatibilityError, OrtMlxError

_FILE: Final = "genai_config.json"
# Folders of links that live as long as the process: a model reads files when it is asked for them.
_folders: list[tempfile.TemporaryDirectory[str]] = []


def genai_config(folder: str | os.PathLike[str], **options: Any) -> Any:
    """A configuration of onnxruntime-genai that runs every part of a model on MLX.

    Args:
        folder: has a genai_config.json and the files that it names. Nothing in it is changed; the
            providers that it lists are left out.
        **options: as `enable` takes them; see docs/options.md.

    Returns:
        An `onnxruntime_genai.Config`, for `onnxruntime_genai.Model`.

    Raises:
        CompatibilityError: onnxruntime-genai is missing.
        OptionError, DeviceError: as `enable` raises them.
        OrtMlxError: there is no such configuration, or it is none.
    """
    strings = registration.checked(options)
    genai = _genai()
    source = Path(folder).resolve()
    made = on_mlx(_read(source / _FILE), strings)
    links = tempfile.TemporaryDirectory(prefix="ort-mlx-genai-")
    _folders.append(links)
    target = Path(links.name)
    for entry in source.iterdir():
        if entry.name != _FILE:
            (target / entry.name).symlink_to(entry, target_is_directory=entry.is_dir())
    (target / _FILE).write_text(json.dumps(made))
    _register(genai)
    return genai.Config(str(target))


def on_mlx(configuration: dict[str, Any], options: dict[str, str]) -> dict[str, Any]:
    """The contents of a genai_config.json with MLX as the one provider of each part.

    A part without session options of its own goes by the decoder's.
    """
    made: dict[str, Any] = json.loads(json.dumps(configuration))
    model = made.setdefault("model", {})
    model.setdefault("decoder", {}).setdefault("session_options", {})
    for part in _parts(model):
        threads = part.get("intra_op_num_threads")
        own = {"threads": str(threads), **options} if threads else dict(options)
        part["provider_options"] = [{EP_NAME: own}]
    return made


def _parts(section: Any) -> Iterator[dict[str, Any]]:
    if isinstance(section, list):
        for item in section:
            yield from _parts(item)
    elif isinstance(section, dict):
        for name, value in section.items():
            if name == "session_options" and isinstance(value, dict):
                yield value
            else:
                yield from _parts(value)


def _read(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OrtMlxError(
            f"{path.parent} has no {_FILE}; onnxruntime-genai's model builder writes one"
        ) from None
    except (OSError, ValueError) as error:
        raise OrtMlxError(f"{path} cannot be read: {error}") from error
    section: Any = read
    for name in ("model", "decoder", "session_options"):
        section = section.get(name, {}) if isinstance(section, dict) else None
    if not isinstance(read, dict) or not isinstance(section, dict):
        raise OrtMlxError(f"{path} is not a configuration of onnxruntime-genai")
    return read


def _genai() -> ModuleType:
    try:
        import onnxruntime_genai
    except ImportError as error:
        raise CompatibilityError(
            f"onnxruntime-genai does not load ({error}); run: pip install onnxruntime-genai"
        ) from error
    return onnxruntime_genai  # type: ignore[no-any-return]


def _register(genai: ModuleType) -> None:
    try:
        genai.register_execution_provider_library(EP_NAME, registration.get_library_path())
    except Exception as error:
        if "already registered" not in str(error):
            raise
