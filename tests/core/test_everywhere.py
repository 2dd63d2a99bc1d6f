"""`everywhere`: sessions that know nothing of us run on MLX, and afterwards nothing is changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import onnxruntime as ort
import pytest

import ort_mlx
from core.graphs import CPU, MLX, placed, recorded, relu

ORIGINAL = ort.InferenceSession.__init__
ON_MLX = {MLX: {"Relu": 1}}
ON_CPU = {CPU: {"Relu": 1}}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    assert ort.InferenceSession.__init__ is ORIGINAL


def session(options: Any = None, *args: Any, **kwargs: Any) -> Any:
    return ort.InferenceSession(relu(), options or recorded(), *args, **kwargs)


def test_with_block() -> None:
    with ort_mlx.everywhere(device="cpu"):
        inside = session()
    assert placed(inside) == ON_MLX
    assert placed(session()) == ON_CPU


def test_plain_call_and_stop() -> None:
    on = ort_mlx.everywhere(device="cpu")
    try:
        assert placed(session()) == ON_MLX
    finally:
        on.stop()
        on.stop()
    assert placed(session()) == ON_CPU


@pytest.mark.parametrize(
    "kwargs",
    [
        {"providers": [CPU]},
        {"providers": [(CPU, {})]},
        {"providers": [CPU], "provider_options": [{}]},
        {"providers": (CPU,)},
        {"providers": []},
        {"providers": None},
        {"providers": [CPU, MLX]},
        {"providers": [MLX]},
    ],
    ids=str,
)
def test_in_front_of_the_providers_a_program_gives(kwargs: dict[str, Any]) -> None:
    with ort_mlx.everywhere(device="cpu"):
        made = session(**kwargs)
    assert placed(made) == ON_MLX
    assert made.get_providers() == [MLX, CPU]


def test_positional_arguments() -> None:
    with ort_mlx.everywhere(device="cpu"):
        assert placed(session(None, [CPU])) == ON_MLX
        assert placed(session(None, [CPU], [{}])) == ON_MLX


def test_every_available_provider_given_as_programs_do() -> None:
    with ort_mlx.everywhere(device="cpu"):
        made = session(providers=ort.get_available_providers())
    assert placed(made) == ON_MLX
    assert made.get_providers()[0] == MLX


def test_a_provider_that_is_not_installed_stays_a_warning() -> None:
    missing = "CUDAExecutionProvider"
    if missing in ort.get_available_providers():
        pytest.skip("it is installed here")
    with (
        ort_mlx.everywhere(device="cpu"),
        pytest.warns(UserWarning, match=f"'{missing}' is not in available"),
    ):
        assert placed(session(providers=[missing, CPU])) == ON_MLX


def test_shared_session_options_are_left_as_they_were() -> None:
    shared = recorded()
    with ort_mlx.everywhere(device="cpu"):
        for _ in range(2):
            assert placed(session(shared)) == ON_MLX
            assert placed(session(shared, [CPU])) == ON_MLX
    assert not shared.has_providers()
    assert placed(session(shared)) == ON_CPU


def test_options_reach_the_session() -> None:
    with ort_mlx.everywhere(device="cpu", exclude_ops=["Relu"]):
        assert placed(session()) == ON_CPU
    with (
        ort_mlx.everywhere(device="cpu", exclude_ops=["Relu"], strict=True),
        pytest.raises(Exception, match=r"strict=True, but 1 of 1 nodes"),
    ):
        session()


def test_nested_uses_stack_and_the_innermost_holds() -> None:
    with ort_mlx.everywhere(device="cpu"):
        with ort_mlx.everywhere(device="cpu", exclude_ops="Relu"):
            assert placed(session()) == ON_CPU
        assert placed(session()) == ON_MLX
    with ort_mlx.everywhere(device="cpu", exclude_ops="Relu"):
        with ort_mlx.everywhere(device="cpu"):
            assert placed(session()) == ON_MLX
        assert placed(session()) == ON_CPU


def test_stopped_in_another_order() -> None:
    first = ort_mlx.everywhere(device="cpu", exclude_ops="Relu")
    second = ort_mlx.everywhere(device="cpu")
    first.stop()
    assert placed(session()) == ON_MLX
    second.stop()
    assert placed(session()) == ON_CPU


def test_a_program_that_asks_for_us_itself_keeps_its_options() -> None:
    with ort_mlx.everywhere(device="cpu"):
        declined = {"device": "cpu", "exclude_ops": "Relu"}
        assert placed(session(providers=[(MLX, declined), CPU])) == ON_CPU
        assert placed(session(providers=[MLX, CPU], provider_options=[declined, {}])) == ON_CPU
        assert placed(session(ort_mlx.enable(recorded(), exclude_ops="Relu"))) == ON_CPU


def test_an_exception_inside_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), ort_mlx.everywhere(device="cpu"):
        raise ZeroDivisionError
    assert placed(session()) == ON_CPU


def test_a_session_class_of_a_program() -> None:
    class Own(ort.InferenceSession):
        def __init__(self, made: bytes) -> None:
            super().__init__(made, recorded(), providers=[CPU])

    with ort_mlx.everywhere(device="cpu"):
        assert placed(Own(relu())) == ON_MLX
    assert placed(Own(relu())) == ON_CPU


def test_other_threads_are_included() -> None:
    made: list[Any] = []
    with ort_mlx.everywhere(device="cpu"):
        thread = threading.Thread(target=lambda: made.append(session()))
        thread.start()
        thread.join()
    assert placed(made[0]) == ON_MLX


def test_mismatched_provider_options_are_an_error() -> None:
    with (
        ort_mlx.everywhere(device="cpu"),
        pytest.raises(ValueError, match="different lengths"),
    ):
        session(providers=[CPU], provider_options=[{}, {}])
