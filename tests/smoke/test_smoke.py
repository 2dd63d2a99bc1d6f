"""The public surface on any ONNX Runtime from 1.24 on; needs nothing but pytest, onnx and numpy."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import ort_mlx

VERSION = tuple(int(n) for n in ort.__version__.split(".")[:2])
CPU = "CPUExecutionProvider"
NAME = ort_mlx.get_ep_name()
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)

NETWORK = """<ir_version: 8, opset_import: ["" : 17]>
network (float[N, 3] x) => (float[N, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {0.5, -0.5}>
{
    product = MatMul(x, w)
    sum = Add(product, b)
    y = Relu(sum)
}"""
WITH_STRINGS = """<ir_version: 8, opset_import: ["" : 17]>
words (float[N] x, string[N] s) => (float[N] y, string[N] t)
{
    y = Abs(x)
    t = Identity(s)
}"""


def _bytes(text: str) -> bytes:
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def _quiet() -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return options


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    ort_mlx.register()
    yield
    ort_mlx.register()


@pytest.fixture
def expected() -> np.ndarray:
    session = ort.InferenceSession(_bytes(NETWORK), _quiet(), providers=[CPU])
    return np.asarray(session.run(None, {"x": X})[0])


def _check(session: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-6)


def test_registers_once() -> None:
    ort_mlx.register()
    assert ort_mlx.is_registered()
    assert len(ort_mlx.devices()) == 1
    assert ort_mlx.get_ep_names() == [NAME]


def test_enable_runs_on_mlx(expected: np.ndarray) -> None:
    options = ort_mlx.enable(_quiet(), device="auto")
    assert ort_mlx.enable(options) is options
    session = ort.InferenceSession(_bytes(NETWORK), options)
    _check(session, expected)
    report = ort_mlx.report(session)
    assert (report.left, report.partitions) == ([], 1)
    assert "1 partition" in str(report)


def test_strict_names_what_would_stay() -> None:
    options = ort_mlx.enable(_quiet(), strict=True)
    with pytest.raises(Exception, match=r"(?s)strict=True.*Identity.*string"):
        ort.InferenceSession(_bytes(WITH_STRINGS), options, enable_fallback=0)


def test_strict_takes_what_runs(expected: np.ndarray) -> None:
    session = ort.InferenceSession(_bytes(NETWORK), ort_mlx.enable(_quiet(), strict=True))
    _check(session, expected)


def test_part_of_a_model_stays() -> None:
    session = ort.InferenceSession(_bytes(WITH_STRINGS), ort_mlx.enable(_quiet()))
    y, t = session.run(None, {"x": X[0], "s": np.array(["a", "b", "c"], object)})
    assert y.tolist() == [1, 2, 3]
    assert list(t) == ["a", "b", "c"]
    (left,) = ort_mlx.report(session).left
    assert left.op_type == "Identity"


@pytest.mark.skipif(VERSION < (1, 25), reason="ORT 1.24 does not list plugin providers by name")
def test_by_name(expected: np.ndarray) -> None:
    providers = [(NAME, {"device": "cpu"}), CPU]
    session = ort.InferenceSession(_bytes(NETWORK), _quiet(), providers=providers)
    _check(session, expected)
    assert session.get_providers()[0] == NAME
    assert ort_mlx.report(session).left == []


def test_by_device(expected: np.ndarray) -> None:
    options = _quiet()
    options.add_provider_for_devices(ort_mlx.devices(), {"device": "cpu"})
    _check(ort.InferenceSession(_bytes(NETWORK), options), expected)


def test_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ort_mlx.OptionError, match="did you mean 'strict'"):
        ort_mlx.enable(_quiet(), stict=True)


def test_run_async(expected: np.ndarray) -> None:
    session = ort.InferenceSession(_bytes(NETWORK), ort_mlx.enable(_quiet()))
    done, answers = threading.Event(), []

    def take(results: Any, _: Any, error: str) -> None:
        answers.append((results, error))
        done.set()

    session.run_async(None, {"x": X}, take, None)
    assert done.wait(60)
    results, error = answers[0]
    assert not error
    np.testing.assert_allclose(results[0], expected, rtol=1e-6)


def test_many_threads(expected: np.ndarray) -> None:
    session = ort.InferenceSession(_bytes(NETWORK), ort_mlx.enable(_quiet()))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                _check(session, expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_wrong_shape_is_an_error_and_no_more(expected: np.ndarray) -> None:
    session = ort.InferenceSession(_bytes(NETWORK), ort_mlx.enable(_quiet()))
    with pytest.raises(Exception, match=r"(?i)invalid"):
        session.run(None, {"x": X.T})
    _check(session, expected)
    assert session.get_providers()[0] == NAME


def test_everywhere(expected: np.ndarray) -> None:
    with ort_mlx.everywhere(device="cpu"):
        inside = ort.InferenceSession(_bytes(NETWORK), _quiet(), providers=[CPU])
    outside = ort.InferenceSession(_bytes(NETWORK), _quiet(), providers=[CPU])
    _check(inside, expected)
    assert ort_mlx.report(inside).left == []
    assert outside.get_providers() == [CPU]


def test_report_of_another_session() -> None:
    session = ort.InferenceSession(_bytes(NETWORK), _quiet(), providers=[CPU])
    with pytest.raises(ort_mlx.OrtMlxError, match="does not use"):
        ort_mlx.report(session)


def test_unregister(expected: np.ndarray) -> None:
    session = ort.InferenceSession(_bytes(NETWORK), ort_mlx.enable(_quiet()))
    ort_mlx.unregister()
    ort_mlx.unregister()
    assert not ort_mlx.is_registered()
    _check(session, expected)


def test_exit_with_a_live_session() -> None:
    code = (
        "import onnxruntime as ort, ort_mlx, sys\n"
        "model = sys.stdin.buffer.read()\n"
        "session = ort.InferenceSession(model, ort_mlx.enable())\n"
        "import numpy as np\n"
        "print(session.run(None, {'x': np.ones((1, 3), np.float32)})[0].shape)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], input=_bytes(NETWORK), capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert b"(1, 2)" in ended.stdout
    assert b"leak" not in ended.stderr
