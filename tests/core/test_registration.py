"""The Python API: registering, enabling, devices, and options on every way in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ort_mlx
from core.graphs import CPU, MLX, cpu_session, mlx_session, placed, recorded, relu
from ort_mlx import _native

NO_GPU = not _native.gpu_is_available()


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    ort_mlx.register()
    yield
    ort_mlx.register()


def test_names_and_path() -> None:
    assert ort_mlx.get_ep_name() == MLX
    assert ort_mlx.get_ep_names() == [MLX]
    path = ort_mlx.get_library_path()
    assert os.path.isabs(path)
    assert os.path.samefile(path, _native.__file__)


def test_register_and_unregister_can_be_repeated(x: np.ndarray) -> None:
    for _ in range(3):
        ort_mlx.unregister()
        ort_mlx.unregister()
        assert not ort_mlx.is_registered()
        assert ort_mlx.devices() == []
        ort_mlx.register()
        ort_mlx.register()
        assert ort_mlx.is_registered()
        session = mlx_session(relu())
        assert set(placed(session)) == {MLX}
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


def test_enable_registers(x: np.ndarray) -> None:
    ort_mlx.unregister()
    session = mlx_session(relu())
    assert ort_mlx.is_registered()
    assert set(placed(session)) == {MLX}


def test_somebody_elses_registration_is_seen() -> None:
    ort_mlx.unregister()
    ort.register_execution_provider_library("another name", ort_mlx.get_library_path())
    try:
        assert ort_mlx.is_registered()
        ort_mlx.register()
        assert len(ort_mlx.devices()) == 1
    finally:
        ort.unregister_execution_provider_library("another name")


def test_one_device_is_listed_and_says_what_it_is() -> None:
    (device,) = ort_mlx.devices()
    assert device.ep_name == MLX
    assert device.ep_metadata["mlx_device"] == ("cpu" if NO_GPU else "gpu")
    assert device.ep_metadata["mlx_version"] == _native.mlx_version()


def test_enable_makes_or_takes_session_options() -> None:
    given = recorded()
    assert ort_mlx.enable(given, device="cpu") is given
    assert placed(ort.InferenceSession(relu(), given)) == {MLX: {"Relu": 1}}
    made = ort_mlx.enable(device="cpu")
    assert MLX in ort.InferenceSession(relu(), made).get_providers()


def test_enable_again_only_changes_options() -> None:
    options = recorded()
    ort_mlx.enable(options, device="cpu")
    ort_mlx.enable(options, exclude_ops=["Relu"])
    declined = ort.InferenceSession(relu(), options)
    assert declined.get_providers().count(MLX) == 1
    assert placed(declined) == {CPU: {"Relu": 1}}
    ort_mlx.enable(options, exclude_ops=[])
    assert placed(ort.InferenceSession(relu(), options)) == {MLX: {"Relu": 1}}


def test_enable_again_keeps_what_is_not_given() -> None:
    options = recorded()
    ort_mlx.enable(options, device="cpu", exclude_ops=["Relu"])
    ort_mlx.enable(options, keep_islands=True)
    assert options.get_session_config_entry("ep.mlxexecutionprovider.device") == "cpu"
    assert placed(ort.InferenceSession(relu(), options)) == {CPU: {"Relu": 1}}


def test_an_option_set_before_enable() -> None:
    options = recorded()
    options.add_session_config_entry("ep.mlxexecutionprovider.device", "cpu")
    assert placed(ort.InferenceSession(relu(), ort_mlx.enable(options))) == {MLX: {"Relu": 1}}


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_no_gpu_is_an_error_with_advice() -> None:
    for ask in (ort_mlx.enable, ort_mlx.everywhere):
        with pytest.raises(ort_mlx.DeviceError, match=r"no GPU here.*device='cpu'.*doctor"):
            ask(device="gpu")


def test_a_wrong_option_is_an_error_at_once() -> None:
    for ask in (ort_mlx.enable, ort_mlx.everywhere):
        with pytest.raises(ort_mlx.OptionError, match="did you mean 'strict'"):
            ask(strikt=True)


def by_name(options: dict[str, str] | None = None) -> Any:
    providers = [MLX if options is None else (MLX, options), CPU]
    return ort.InferenceSession(relu(), recorded(), providers=providers, enable_fallback=0)


def test_by_name() -> None:
    assert placed(by_name()) == {MLX: {"Relu": 1}}
    assert placed(by_name({"device": "cpu"})) == {MLX: {"Relu": 1}}
    assert placed(by_name({"exclude_ops": "Relu"})) == {CPU: {"Relu": 1}}


def test_by_name_options_are_validated() -> None:
    with pytest.raises(Exception, match=r"unknown option 'devise' \(did you mean 'device'\?\)"):
        by_name({"devise": "cpu"})
    with pytest.raises(Exception, match="'strict' is true or false, not 'maybe'"):
        by_name({"strict": "maybe"})


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_by_name_no_gpu_is_an_error() -> None:
    with pytest.raises(Exception, match="device='gpu' was asked for, but MLX has no GPU here"):
        by_name({"device": "gpu"})


POLICIES = [
    "DEFAULT",
    "PREFER_CPU",
    "PREFER_GPU",
    "PREFER_NPU",
    "MAX_PERFORMANCE",
    "MAX_EFFICIENCY",
    "MIN_OVERALL_POWER",
]


@pytest.mark.skipif(not NO_GPU, reason="a policy may choose us where there is a GPU")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_does_not_choose_us_without_a_gpu(
    policy: str, capfd: pytest.CaptureFixture[str], x: np.ndarray
) -> None:
    options = recorded()
    options.log_severity_level = 2
    options.set_provider_selection_policy(getattr(ort.OrtExecutionProviderDevicePolicy, policy))
    session = ort.InferenceSession(relu(), options)
    assert placed(session) == {CPU: {"Relu": 1}}
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
    logged = capfd.readouterr().err
    if MLX in session.get_providers():  # then it says why it does nothing
        assert "no GPU here and no option says to run on the CPU" in logged
        (left,) = ort_mlx.report(session).left
        assert left.reasons == ("chosen by a policy, on a machine without a GPU",)


@pytest.mark.skipif(not NO_GPU, reason="a policy may choose us where there is a GPU")
def test_a_policy_with_an_option_of_ours_is_a_choice() -> None:
    options = recorded()
    options.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    options.add_session_config_entry("ep.mlxexecutionprovider.device", "cpu")
    session = ort.InferenceSession(relu(), options)
    if MLX in session.get_providers():
        assert placed(session) == {MLX: {"Relu": 1}}


def test_report_of_a_session_without_us() -> None:
    with pytest.raises(
        ort_mlx.OrtMlxError, match=r"does not use MLX.*it uses CPUExecutionProvider"
    ):
        ort_mlx.report(cpu_session(relu()))
    replaced = ort_mlx.enable(device="cpu")
    with pytest.warns(UserWarning, match="already been configured with providers"):
        session = ort.InferenceSession(relu(), replaced, providers=[CPU])
    with pytest.raises(
        ort_mlx.OrtMlxError, match=r"`providers=` given to InferenceSession replaces"
    ):
        ort_mlx.report(session)


class TestWrongArguments:
    """One sentence that says what is wanted and what was given."""

    @pytest.mark.parametrize("given", [None, 3, "model.onnx"])
    def test_a_session(self, given: object) -> None:
        for function in (ort_mlx.report, ort_mlx.cancel, lambda s: ort_mlx.warmup(s, {})):
            with pytest.raises(TypeError, match=r"takes an onnxruntime\.InferenceSession, not "):
                function(given)

    @pytest.mark.parametrize("given", ["model.onnx", {"device": "cpu"}])
    def test_session_options(self, given: object) -> None:
        with pytest.raises(TypeError, match=r"takes an onnxruntime\.SessionOptions"):
            ort_mlx.enable(given)

    @pytest.mark.parametrize("given", [None, [], (1, 3)])
    def test_inputs(self, given: object) -> None:
        with pytest.raises(TypeError, match="the shapes of the inputs by name"):
            ort_mlx.warmup(mlx_session(relu()), given)


def test_a_name_that_no_operator_has_is_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 2
    mlx_session(relu(), options, exclude_ops=["Relo", "Conv"])
    logged = capfd.readouterr().err
    assert "exclude_ops names 'Relo', no known operator (did you mean 'Relu'?)" in logged
    assert "Conv" not in logged
