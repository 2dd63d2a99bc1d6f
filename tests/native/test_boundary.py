"""Nothing is thrown across the C boundary; an error leaves a process and a session that work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ort_mlx
from core.graphs import INT64, MLX, mlx_session, model, node, placed, recorded, relu, tensor
from ort_mlx import _native

INVALID = ort.capi.onnxruntime_pybind11_state.InvalidArgument


@pytest.fixture
def throwing() -> Iterator[Callable[[bool], None]]:
    yield _native.throw_in_callbacks
    _native.throw_in_callbacks(False)


def works(session: Any, x: np.ndarray) -> None:
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


PURPOSE = "thrown on purpose by a test"


def test_throwing_in_compute(throwing: Callable[[bool], None], x: np.ndarray) -> None:
    session = mlx_session(relu())
    works(session, x)
    for _ in range(3):
        throwing(True)
        with pytest.raises(Exception, match=PURPOSE) as caught:
            session.run(None, {"x": x})
        assert "EP_FAIL" not in str(caught.value)
        throwing(False)
        works(session, x)
    assert placed(session) == {MLX: {"Relu": 1}}  # not rebuilt on the CPU


def test_throwing_before_the_first_run(throwing: Callable[[bool], None], x: np.ndarray) -> None:
    session = mlx_session(relu())
    throwing(True)
    with pytest.raises(Exception, match=PURPOSE):
        session.run(None, {"x": x})
    throwing(False)
    works(session, x)


def test_throwing_while_a_session_is_made(throwing: Callable[[bool], None], x: np.ndarray) -> None:
    options = ort_mlx.enable(recorded(), device="cpu")
    throwing(True)
    with pytest.raises(Exception, match=PURPOSE):
        ort.InferenceSession(relu(), options, enable_fallback=0)
    throwing(False)
    works(ort.InferenceSession(relu(), options, enable_fallback=0), x)


def test_throwing_while_a_session_is_released(throwing: Callable[[bool], None]) -> None:
    session = mlx_session(relu())
    before = _native.counters()["swallowed_exceptions"]
    throwing(True)
    del session
    throwing(False)
    assert _native.counters()["swallowed_exceptions"] > before


def test_throwing_in_a_dynamic_option(throwing: Callable[[bool], None], x: np.ndarray) -> None:
    session = mlx_session(relu())
    throwing(True)
    with pytest.raises(Exception, match=PURPOSE):
        session.set_ep_dynamic_options({"key": "value"})
    throwing(False)
    session.set_ep_dynamic_options({"key": "value"})
    works(session, x)


def test_throwing_while_registering(throwing: Callable[[bool], None], x: np.ndarray) -> None:
    ort_mlx.unregister()
    throwing(True)
    with pytest.raises(Exception, match=PURPOSE):
        ort_mlx.register()
    assert not ort_mlx.is_registered()
    throwing(False)
    ort_mlx.register()
    works(mlx_session(relu()), x)


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError, MemoryError, SystemExit])
@pytest.mark.parametrize("where", ["keeps_bodies_of", "partition", "compile", "run"])
def test_python_errors(
    error: type[BaseException], where: str, monkeypatch: pytest.MonkeyPatch, x: np.ndarray
) -> None:
    """Errors of our own Python, wherever they come from, reach the user as text or are logged."""
    from ort_mlx import plan, session

    def fail(*args: Any, **kwargs: Any) -> None:
        raise error("made to fail")

    owner = plan.Plan if where == "run" else session.EpSession
    session_ = mlx_session(relu())
    with monkeypatch.context() as patched:
        patched.setattr(owner, where, fail)
        if where == "run":
            patched.setattr(owner, "trace", fail, raising=False)
            with pytest.raises(Exception, match="made to fail"):
                session_.run(None, {"x": x})
        elif where == "compile":
            with pytest.raises(Exception, match="made to fail"):
                mlx_session(relu())
        else:
            works(mlx_session(relu()), x)
    works(session_, x)
    works(mlx_session(relu()), x)


def mismatch() -> bytes:
    return model(
        [node("Add", ["x", "z"], ["y"], name="the_sum")],
        [tensor("x"), tensor("z")],
        [tensor("y")],
    )


def test_shapes_that_do_not_fit_are_named(x: np.ndarray) -> None:
    session = mlx_session(mismatch())
    good = {"x": x, "z": x[:1]}
    for feed in ({"x": x, "z": x.T}, {"x": x, "z": x[:0]}):
        with pytest.raises(INVALID) as caught:
            session.run(None, feed)
        text = str(caught.value)
        assert "[Add 'the_sum']" in text
        assert "float32[2, 3]" in text
        assert f"float32{list(feed['z'].shape)}" in text
        np.testing.assert_array_equal(session.run(None, good)[0], x + x[:1])


def test_host_values_that_do_not_fit_are_named(x: np.ndarray) -> None:
    made = model(
        [node("Reshape", ["x", "s"], ["y"], name="to_shape"), node("Gather", ["y", "i"], ["z"])],
        [tensor("x"), tensor("s", INT64, ["n"]), tensor("i", INT64, [])],
        [tensor("z")],
    )
    session = mlx_session(made)
    assert set(placed(session)) == {MLX}
    good = {"x": x, "s": np.array([3, 2]), "i": np.array(2)}
    for shape in ([4, 2], [-1, -1], [0, 7], [-5]):
        with pytest.raises(INVALID, match="to_shape"):
            session.run(None, {**good, "s": np.array(shape)})
        np.testing.assert_array_equal(session.run(None, good)[0], x.reshape(3, 2)[2])


def test_feeds_that_ort_refuses_itself(x: np.ndarray) -> None:
    session = mlx_session(relu([2, 3]))
    for feed, message in (
        ({"x": x.astype(np.float64)}, "data type"),
        ({"x": x[0]}, "rank"),
        ({"x": x.T}, "dimensions"),
        ({}, "missing"),
        ({"z": x, "x": x}, "z"),
        ({"x": "text"}, ""),
    ):
        with pytest.raises(Exception, match=f"(?i){message}"):
            session.run(None, feed)
        works(session, x)


@pytest.mark.parametrize("kind", ["empty", "noise", "cut", "text", "missing"])
def test_a_corrupt_file(kind: str, tmp_path: Path, x: np.ndarray) -> None:
    made = relu()
    contents = {
        "empty": b"",
        "noise": np.random.default_rng(0).bytes(500),
        "cut": made[: len(made) // 2],
        "text": b"not a model",
    }
    path = tmp_path / "model.onnx"
    if kind != "missing":
        path.write_bytes(contents[kind])
    with pytest.raises(Exception, match=r"\S"):
        mlx_session(str(path))
    works(mlx_session(made), x)


def test_external_data_that_is_missing_or_short(tmp_path: Path, x: np.ndarray) -> None:
    import onnx
    from onnx import external_data_helper

    weight = np.ones((64, 64), np.float32)
    proto = onnx.load_from_string(
        model([node("Add", ["x", "w"], ["y"])], [tensor("x")], [tensor("y")], {"w": weight})
    )
    external_data_helper.convert_model_to_external_data(proto, location="w.bin", size_threshold=16)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    whole = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(whole[:100])
    with pytest.raises(Exception, match=r"\S"):
        mlx_session(str(path))
    (tmp_path / "w.bin").unlink()
    with pytest.raises(Exception, match=r"\S"):
        mlx_session(str(path))
    (tmp_path / "w.bin").write_bytes(whole)
    np.testing.assert_array_equal(mlx_session(str(path)).run(None, {"x": weight})[0], weight + 1)
