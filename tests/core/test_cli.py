"""The commands of `python -m ort_mlx`, through their real entry point."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx.parser
import pytest

from ort_mlx import _native, describe, doctor, registry

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
words (float[N] x, string[N] s) => (float[N] y, string[N] t)
{
    y = Abs(x)
    t = Identity(s)
}"""


def _run(*arguments: str, status: int = 0) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "ort_mlx", *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "words.onnx"
    path.write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    return str(path)


def test_doctor_finds_nothing() -> None:
    text = _run("doctor")
    assert "everything is in order" in text
    for subject in ("onnxruntime", "mlx", "nanobind", "blas", "MLXExecutionProvider", "comes back"):
        assert subject in text


def test_doctor_gives_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> object:
        raise ImportError("no onnxruntime here")

    monkeypatch.setattr(doctor.compat, "onnxruntime", fail)
    failed = [c for c in doctor.examine() if not c.passed]
    assert [c.subject for c in failed] == ["onnxruntime", "device", "a session"]
    assert "pip install --upgrade onnxruntime" in failed[0].advice
    assert "no onnxruntime here" in failed[0].found


@pytest.mark.parametrize("native", [None, b"not a library"], ids=["absent", "broken"])
def test_every_command_says_that_the_native_module_does_not_load(
    native: bytes | None, tmp_path: Path
) -> None:
    package = Path(_native.__file__).parent
    shutil.copytree(package, tmp_path / "ort_mlx", ignore=shutil.ignore_patterns("_native.*"))
    if native is not None:
        (tmp_path / "ort_mlx" / Path(_native.__file__).name).write_bytes(native)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    for command in ("doctor", "ops"):
        ended = subprocess.run(
            [sys.executable, "-S", "-m", "ort_mlx", command],  # without hooks of editable installs
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 1
        (line,) = ended.stderr.splitlines()
        assert line.startswith("ort_mlx: ort_mlx's native module does not load (")
        assert "reinstall" in line


def test_ops_lists_all() -> None:
    text = _run("ops")
    for made in registry.all_ops():
        assert made.name in text


def test_ops_shows_one() -> None:
    text = _run("ops", "Reshape")
    assert "ai.onnx::Reshape" in text
    assert "shape" in text
    assert "on the host" in text


def test_ops_unknown_gives_a_signature() -> None:
    text = _run("ops", "Optional", status=1)
    assert "is not translated" in text
    assert "def optional(" in text
    assert "input: mx.array | None = None" in text


def test_ops_hints_at_a_name() -> None:
    assert "did you mean Reshape" in _run("ops", "Reshap", status=1)


def test_explain(model: str) -> None:
    text = _run("explain", model)
    assert "1/2 nodes on MLX" in text
    assert "Identity" in text
    assert "string" in text


def test_report_as_data(model: str) -> None:
    shown = json.loads(_run("report", model, "--json"))
    assert (shown["taken"], shown["nodes"]) == (1, 2)
    assert shown["left"][0]["op_type"] == "Identity"


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    assert "cannot open" in _run("explain", str(path), status=1)
    assert "there is no file" in _run("explain", str(tmp_path / "missing.onnx"), status=2)


def test_missing_extra_is_one_sentence() -> None:
    code = (
        "import runpy, sys\n"
        "sys.modules['typer'] = None\n"
        "sys.argv = ['ort_mlx', 'doctor']\n"
        "runpy.run_module('ort_mlx', run_name='__main__')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "pip install 'ort-mlx[cli]'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_signatures_can_be_read_by_python() -> None:
    for name in ("Conv", "Loop", "LSTM", "Concat", "Cast"):
        compile(describe.signature_to_paste(name), name, "exec")
