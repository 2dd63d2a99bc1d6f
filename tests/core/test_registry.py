"""The op registry: what is registered, and that a version is matched exactly."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import pytest

from ort_mlx import registry
from ort_mlx.hosts import HostInts
from ort_mlx.safety import PER_SHAPE


@pytest.fixture
def own_ops() -> Iterator[None]:
    """Leave the real registry as it was."""
    ops = registry._load()
    before = dict(ops)
    yield
    ops.clear()
    ops.update(before)


def test_a_version_is_found_exactly() -> None:
    assert registry.find("", "Relu", 14) is not None
    assert registry.find("ai.onnx", "Relu", 14) is registry.find("", "Relu", 14)
    assert registry.find("", "Relu", 15) is None  # current at opset 15, but not a schema version
    assert registry.find("com.microsoft", "Relu", 14) is None


@pytest.mark.usefixtures("own_ops")
def test_a_second_registration_of_a_version_raises() -> None:
    with pytest.raises(ValueError, match=r"ai\.onnx::Relu 14 is registered twice"):

        @registry.op("Relu", since=(14,))
        def relu(x: mx.array) -> mx.array:
            return x


@pytest.mark.usefixtures("own_ops")
def test_the_signature_becomes_params_and_attributes() -> None:
    @registry.op("Made", since=(1,), domain="test", types={"x": frozenset({"float32"})})
    def made(
        x: mx.array, axes: HostInts | None = None, *more: mx.array, alpha: float = 0.5
    ) -> None:
        pass

    found = registry.find("test", "Made", 1)
    assert found is not None
    assert [(p.name, p.required, p.variadic, p.host is not None) for p in found.params] == [
        ("x", True, False, False),
        ("axes", False, False, True),
        ("more", False, True, False),
    ]
    assert found.params[0].types == {"float32"}
    assert dict(found.attributes) == {"alpha": 0.5}
    assert found.param(7) is found.params[2]
    assert found.safety is PER_SHAPE
    assert registry.versions("test", "Made") == (1,)
    assert found not in registry.all_ops()  # those are this package's own


def test_every_op_is_listed_once_and_by_its_versions() -> None:
    ops = registry.all_ops()
    assert len({id(o) for o in ops}) == len(ops) > 150
    for made in ops:
        assert made.since == tuple(sorted(set(made.since))), made
        for version in made.since:
            assert registry.find(made.domain, made.name, version) is made
