"""Host values: op inputs needed as Python values, and results known on the host.

A parameter annotated with one of these types is a *host parameter*: the op gets a Python value,
never an array. `host_array` is how an op returns a value that is known without the device, such as
a shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from .tracing import NotTraceable, is_tracing

HostValue: TypeAlias = NDArray[Any]
Tensor: TypeAlias = mx.array | HostValue


class BFloat16Copy(np.ndarray[Any, np.dtype[np.float32]]):
    """Bfloat16 values on the host, as float32 since numpy lacks the type; an array gets it back."""


@dataclass(frozen=True)
class HostKind:
    """How a host parameter's tensor becomes a Python value."""

    name: str

    def convert(self, value: HostValue) -> Any:
        """Convert a host tensor; raises ValueError for another number of elements."""
        if self.name == "array":
            return value
        items = value.reshape(-1).tolist()
        if self.name in ("ints", "floats"):
            return tuple(items)
        if len(items) != 1:
            raise ValueError(f"expected one value, got {len(items)}")
        return items[0]


HostInt: TypeAlias = Annotated[int, HostKind("int")]
HostInts: TypeAlias = Annotated[tuple[int, ...], HostKind("ints")]
HostFloat: TypeAlias = Annotated[float, HostKind("float")]
HostFloats: TypeAlias = Annotated[tuple[float, ...], HostKind("floats")]
HostBool: TypeAlias = Annotated[bool, HostKind("bool")]
HostArray: TypeAlias = Annotated[HostValue, HostKind("array")]


def host_array(values: Iterable[int] | int, dtype: str = "int64") -> HostValue:
    """A host value of the given numpy dtype: what `Shape` and `Size` return."""
    return np.asarray(list(values) if isinstance(values, Iterable) else values, dtype=dtype)


# bfloat16 has no numpy type, so it never lives on the host.
_HOST_DTYPES: Final = frozenset(
    {mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32, mx.int64}
    | {mx.float16, mx.float32, mx.float64}
)


def to_host(value: Tensor) -> HostValue:
    """The value as numpy; waits for the device when it is an array.

    Raises:
        NotTraceable: in a trace, when the value depends on a placeholder.
    """
    if isinstance(value, np.ndarray):
        return value
    if value.dtype not in _HOST_DTYPES:
        value = value.astype(mx.float32)
    try:
        mx.eval(value)  # numpy would hide what fails in here, and return what is in memory
        return np.array(value)
    except RuntimeError as error:
        if not is_tracing():
            raise
        raise NotTraceable("a value is needed on the host that the device computes") from error


def may_stay_on_host(value: mx.array) -> bool:
    """Whether numpy can hold this array exactly."""
    return value.dtype in _HOST_DTYPES


def to_device(value: Tensor) -> mx.array:
    """The value as an MLX array of the same dtype."""
    if isinstance(value, np.ndarray):
        return array_of(value)
    return value


def array_of(value: HostValue) -> mx.array:
    """An MLX array with the dtype of `value`; float64 is kept, which mx.array alone does not do."""
    if isinstance(value, BFloat16Copy):
        return mx.array(np.asarray(value)).astype(mx.bfloat16)
    if value.dtype == np.float64:
        return mx.array(value, dtype=mx.float64)
    return mx.array(value)


def zeros(ort_type: str, shape: Sequence[int]) -> HostValue:
    """Zeros of a type as ONNX Runtime's Python API spells it, such as ``tensor(float)``."""
    name = ort_type.removeprefix("tensor(").removesuffix(")")
    spelled = {"float": "float32", "double": "float64"}.get(name, name)
    return np.zeros(tuple(shape), spelled)
