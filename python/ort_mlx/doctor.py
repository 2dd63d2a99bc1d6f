"""Is everything here that the provider needs? One check a subject, each with advice."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np

from . import _native, compat, registration

# y = x + x over float32[2], opset 13: enough to see a session run on MLX.
_TINY_MODEL: Final = bytes.fromhex(
    "08083a370a100a01780a017812017922034164643a001201675a0f0a0178120a0a08080112040a020802"
    "620f0a0179120a0a08080112040a02080242040a00100d"
)
_BACKENDS: Final = ("mlx-cpu", "mlx-cuda-12", "mlx-cuda-13", "mlx-metal")
_BLAS: Final = re.compile(r"(openblas|mkl|blis|atlas|lapack|blas|cublas)", re.IGNORECASE)


@dataclass(frozen=True)
class Check:
    """One line of the doctor's answer; `advice` matters when it did not pass."""

    subject: str
    found: str
    passed: bool = True
    advice: str = ""


def examine() -> list[Check]:
    """Run every check; none of them raises."""
    checks = []
    for subject, look, advice in _CHECKS:
        try:
            checks += list(look())
        except Exception as error:  # whatever breaks here is what the user came to find out
            text = f"{type(error).__name__}: {error}"
            checks.append(Check(subject, text, passed=False, advice=advice))
    return checks


def _python() -> Iterator[Check]:
    yield Check("python", f"{platform.python_version()} on {platform.platform()}")
    version = _version("ort-mlx") or "from a source tree"
    yield Check("ort-mlx", f"{version} at {Path(__file__).parent}")


def _onnxruntime() -> Iterator[Check]:
    ort = compat.onnxruntime()
    flavours = importlib.metadata.packages_distributions().get("onnxruntime", [])
    listed = ", ".join(f"{name} {_version(name)}" for name in sorted(set(flavours)))
    yield Check(
        "onnxruntime",
        f"{ort.__version__} ({listed or 'built here'})",
        passed=len(set(flavours)) <= 1,
        advice="several onnxruntime packages overwrite each other's files; uninstall all of them "
        "and install the one you need",
    )
    yield Check("onnxruntime build", str(ort.get_build_info()).strip())


def _mlx() -> Iterator[Check]:
    backends = [f"{name} {_version(name)}" for name in _BACKENDS if _version(name)]
    versions = {_version(name) for name in ("mlx", *_BACKENDS)} - {None}
    yield Check(
        "mlx",
        f"{_native.mlx_version()} ({', '.join(backends) or 'no backend package'})",
        passed=len(versions) <= 1,
        advice="mlx and its backend have different versions; "
        f"run: pip install 'mlx=={_native.COMPILED_MLX_VERSION}' and the extra for this machine",
    )
    yield Check("mlx default device", str(mx.default_device()))
    gpu = _native.gpu_is_available()
    yield Check("gpu", "yes" if gpu else "none; device='auto' runs on the CPU")


def _native_module() -> Iterator[Check]:
    yield Check(
        "native module",
        f"compiled for mlx {_native.COMPILED_MLX_VERSION} with nanobind {_native.NANOBIND_VERSION}",
        passed=_native.mlx_version() == _native.COMPILED_MLX_VERSION,
        advice=f"run: pip install 'mlx=={_native.COMPILED_MLX_VERSION}'",
    )
    sent = mx.array([1.0, 2.0])
    returned = _native.pass_array(sent)
    same = bool(mx.array_equal(sent, returned).item())
    yield Check(
        "one mx.array through it",
        "comes back" if same else f"comes back as {returned}",
        passed=same,
        advice=_REINSTALL,
    )


def _blas() -> Iterator[Check]:
    if sys.platform == "darwin":
        yield Check("blas on the CPU", "Accelerate")
        return
    mapped = {
        Path(line.split()[-1]).name
        for line in Path("/proc/self/maps").read_text().splitlines()
        if ".so" in line
    }
    found = sorted(name for name in mapped if _BLAS.search(name.split(".so")[0]))
    yield Check("blas libraries loaded", ", ".join(found) or "none by name")


def _devices() -> Iterator[Check]:
    registration.register()
    ort = compat.onnxruntime()
    for device in ort.get_ep_devices():
        kind = str(device.device.type).rsplit(".", 1)[-1]
        yield Check("device", f"{device.ep_name} ({device.ep_vendor}) on {kind}")
    yield Check("providers", ", ".join(ort.get_available_providers()))
    found = registration.devices()
    yield Check(
        "our device",
        f"{len(found)}",
        passed=len(found) == 1,
        advice="ONNX Runtime lists the provider not exactly once; do not register its library "
        "under a second name, call ort_mlx.register()",
    )


def _session() -> Iterator[Check]:
    ort = compat.onnxruntime()
    options = registration.enable(ort.SessionOptions())
    options.log_severity_level = 3
    session = ort.InferenceSession(_TINY_MODEL, options)
    (result,) = session.run(None, {"x": np.array([1, 2], np.float32)})
    report = registration.report(session)
    right = result.tolist() == [2.0, 4.0] and report.taken == 1
    yield Check("a session", report.line(), passed=right, advice=_REINSTALL)


_REINSTALL: Final = "run: pip install --force-reinstall ort-mlx"
_CHECKS: Final[tuple[tuple[str, Callable[[], Iterator[Check]], str], ...]] = (
    ("python", _python, _REINSTALL),
    ("onnxruntime", _onnxruntime, "run: pip install --upgrade onnxruntime"),
    ("mlx", _mlx, _REINSTALL),
    ("native module", _native_module, _REINSTALL),
    ("blas libraries loaded", _blas, "nothing to do"),
    ("device", _devices, "run: pip install --upgrade onnxruntime"),
    ("a session", _session, _REINSTALL),
)


def _version(package: str) -> Any:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
