"""Cases: one operator call each, and the one-node models that run it.

    case("Slice", rand(N, 5), const([1]), const([3]))

An input is random (`rand`), given at run time (`ints`, `values`), an initializer (`const`) or left
out (`omitted`). A `Dim` in a shape is symbolic in the model and has another size in the second
round. An input without a dtype takes the dtype under test: a case runs for every dtype that the op
declares and the schema permits, and for every schema version that its translation is registered
for.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ml_dtypes
import mlx.core as mx
import numpy as np
import onnx
import onnx.helper as oh

from ort_mlx import registry
from ort_mlx.dtypes import MLX_DTYPES, NARROW_FLOATS, ONNX_CODES
from ort_mlx.registry import ML, MS, OpDef
from support import schemas
from support.edges import Array, cast_array, numpy_dtype

Make = Callable[[np.random.Generator, tuple[int, ...], np.dtype[Any]], Array]

HALVES: Final = ("float16", "bfloat16")
ROUNDS: Final = (0, 1)
# The first of these that a case can take is the one that every older version is tried with.
_PREFERRED: Final = ("float32", "int64", "int32", "bool", "uint8")


@dataclass(frozen=True)
class Dim:
    """A symbolic dimension with its size in each round."""

    name: str
    sizes: tuple[int, int]

    def __str__(self) -> str:
        return self.name


N, M, K, L = Dim("N", (3, 5)), Dim("M", (4, 2)), Dim("K", (2, 6)), Dim("L", (5, 7))


@dataclass(frozen=True)
class Input:
    """One input: how to make its values, and what the model says of it."""

    shape: tuple[int | Dim, ...] = ()
    make: Make | None = None  # None leaves the input out
    dtype: str | None = None  # None is the dtype under test
    constant: bool = False
    whole: bool = True  # whether integer dtypes can hold its values
    lowest: float = 0
    highest: float = 0
    then: Input | None = None  # what it is in the second round

    def sizes(self, turn: int) -> tuple[int, ...]:
        """The concrete shape in a round."""
        if self.then is not None and turn == 1:
            return self.then.sizes(0)
        return tuple(d.sizes[turn] if isinstance(d, Dim) else d for d in self.shape)

    def holds(self, dtype: str) -> bool:
        """Whether the values fit a dtype."""
        if self.dtype is not None or self.make is None or dtype in ("float32", "float64", *HALVES):
            return True
        if dtype in NARROW_FLOATS:
            return True
        limits = ml_dtypes.iinfo("uint2" if dtype == "bool" else dtype)
        low, high = (0, 1) if dtype == "bool" else (limits.min, limits.max)
        return self.whole and low <= self.lowest and self.highest <= high

    def array(self, seed: int, dtype: str, turn: int) -> Array:
        """The values of a round; a constant has those of the first in both."""
        if self.then is not None and turn == 1:
            return self.then.array(seed, dtype, 0)
        turn = 0 if self.constant else turn
        assert self.make is not None
        rng = np.random.default_rng([seed, turn])
        return np.asarray(self.make(rng, self.sizes(turn), numpy_dtype(self.dtype or dtype)))


def rand(
    *shape: int | Dim, low: float | None = None, high: float | None = None, dtype: str | None = None
) -> Input:
    """Random values: normal floats and small integers unless bounds are given (`high` excluded)."""

    def make(rng: np.random.Generator, sizes: tuple[int, ...], kind: np.dtype[Any]) -> Array:
        if kind.kind == "b":
            return rng.integers(0, 2, sizes).astype(bool)
        if kind.kind in "iu":
            least = -9 if low is None else math.ceil(low)
            least = max(least, 0) if kind.kind == "u" else least
            most = 10 if high is None else math.ceil(high)
            return rng.integers(least, max(most, least + 1), sizes).astype(kind)
        if low is None and high is None:
            return cast_array(rng.standard_normal(sizes), kind)
        return cast_array(rng.uniform(low or 0, 1 if high is None else high, sizes), kind)

    return Input(shape, make, dtype)


def values(given: Any, then: Any = None, dtype: str | None = None) -> Input:
    """These values at run time; `then` are those of the second round."""
    array = np.asarray(given)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    return Input(
        array.shape,
        lambda rng, sizes, kind: cast_array(array, kind),
        dtype,
        whole=bool(finite.size == array.size and np.all(np.mod(finite, 1) == 0)),
        lowest=float(finite.min()) if finite.size else 0,
        highest=float(finite.max()) if finite.size else 0,
        then=None if then is None else values(then, dtype=dtype),
    )


def ints(given: Any, then: Any = None, dtype: str = "int64") -> Input:
    """Integers at run time, int64 unless said otherwise."""
    made = values(np.asarray(given, dtype=dtype), dtype=dtype)
    if then is None:
        return made
    other = ints(then, dtype=dtype)
    # One shape for both rounds is declared; another is a dimension.
    shape = tuple(
        a if a == b else Dim(f"V{i}", (int(a), int(b)))  # type: ignore[call-overload]
        for i, (a, b) in enumerate(zip(made.shape, other.shape, strict=True))
    )
    return replace(made, shape=shape, then=other)


def const(given: Any, dtype: str | None = None) -> Input:
    """An initializer: an input turned constant, integers (int64), or floats of the tested dtype."""
    if not isinstance(given, Input):
        array = np.asarray(given)
        if dtype is None and (array.dtype.kind in "iu" or not array.size):
            dtype = "int64"
        given = values(array, dtype=dtype)
    return replace(given, constant=True)


def omitted() -> Input:
    """An optional input that the node leaves out."""
    return Input()


@dataclass(frozen=True)
class Tolerance:
    """More room than the table of dtypes gives, and why."""

    rtol: float
    atol: float
    why: str
    dtypes: tuple[str, ...] = ()  # under test; all when empty


def loose(rtol: float, atol: float, why: str, *dtypes: str) -> Tolerance:
    """A tolerance of a case's own; `why` says what makes the results differ."""
    return Tolerance(rtol, atol, why, dtypes)


@dataclass(frozen=True, eq=False)
class Case:
    """One operator call. See `case`."""

    op_type: str
    inputs: tuple[Input, ...]
    domain: str = ""
    opset: int | None = None
    oldest: int = 0
    outputs: tuple[bool, ...] = (True,)
    id: str = ""
    dtypes: frozenset[str] | None = None
    tolerance: Tolerance | None = None
    reference: Callable[..., Any] | None = None
    holds: Callable[..., None] | None = None
    view: Callable[[list[Array]], Sequence[Array]] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = self.id or "-".join(
            f"{k}={v}"
            for k, v in self.attributes.items()
            if isinstance(v, (int, float, str)) or (isinstance(v, list) and len(v) <= 4)
        )
        return "-".join(p for p in (self.op_type, shown.replace(" ", "")) if p)

    @property
    def version(self) -> int:
        """The schema version at the case's opset, or the newest that is translated."""
        if self.opset is None:
            return max(registry.versions(self.domain, self.op_type), default=1)
        return schemas.resolve(self.domain, self.op_type, self.opset)

    @property
    def opdef(self) -> OpDef:
        """The translation that the case is for."""
        found = registry.find(self.domain, self.op_type, self.version)
        assert found is not None, f"{self.op_type} {self.version} is not translated"
        return found

    def variants(self) -> Iterator[tuple[int, str]]:
        """Every version with one dtype, and the case's own version with every dtype."""
        own = self.version
        for version in self.opdef.since:
            reachable = schemas.opset_of(self.domain, self.op_type, version) is not None
            if not reachable or version < self.oldest:
                continue
            dtypes = self.possible_dtypes(version)
            if version == own:
                yield from ((version, dtype) for dtype in dtypes)
            elif dtypes:
                yield version, dtypes[0]

    def possible_dtypes(self, version: int) -> list[str]:
        """The dtypes under test at a version, the preferred one first."""
        free = [i for i, x in enumerate(self.inputs) if x.make is not None and x.dtype is None]
        if not free:
            return ["float32"]
        schema = schemas.all_schemas()[self.domain, self.op_type, version]
        dtypes = set(MLX_DTYPES if self.dtypes is None else self.dtypes)
        if mx.default_device() == mx.gpu:
            dtypes.discard("float64")  # declined there
        for i in free:
            param = self.opdef.param(i)
            assert param is not None, f"{self} has too many inputs"
            dtypes &= param.types & schema.input_types(i)
            dtypes = {d for d in dtypes if self.inputs[i].holds(d)}
        return sorted(dtypes, key=lambda d: (*(d != p for p in _PREFERRED), d))

    def arrays(self, dtype: str, turn: int) -> list[Array | None]:
        """The inputs of a round in a dtype."""
        seed = zlib.crc32(f"{self}".encode())
        return [
            None if x.make is None else x.array(seed + i, dtype, turn)
            for i, x in enumerate(self.inputs)
        ]

    def model(
        self, arrays: Sequence[Array | None], version: int, bfloat16_edges: Sequence[str] = ()
    ) -> onnx.ModelProto:
        """The one-node model for inputs like these.

        ORT's Python cannot pass bfloat16, so such inputs arrive as float32 and are cast, and so are
        the outputs named in `bfloat16_edges`.
        """
        names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
        outputs = [f"y{i}" if wanted else "" for i, wanted in enumerate(self.outputs)]
        while names and not names[-1]:
            names.pop()
        node = oh.make_node(self.op_type, names, outputs, "node", domain=self.domain)
        node.attribute.extend(_attribute(k, v) for k, v in self.attributes.items())
        graph = oh.make_graph([], "case", [], [])
        for name, x, array in zip(names, self.inputs, arrays, strict=False):
            if array is None:
                continue
            if x.constant:
                graph.initializer.append(onnx.numpy_helper.from_array(array, name))
                continue
            shape = [str(d) if isinstance(d, Dim) else d for d in x.shape]
            edge = array.dtype == ml_dtypes.bfloat16
            code = onnx.TensorProto.FLOAT if edge else oh.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(
                oh.make_tensor_value_info(f"{name}_edge" if edge else name, code, shape)
            )
            if edge:
                graph.node.append(_cast(f"{name}_edge", name, onnx.TensorProto.BFLOAT16))
        graph.node.append(node)
        for name in filter(None, outputs):
            edge = name in bfloat16_edges
            if edge:
                graph.node.append(_cast(name, f"{name}_edge", onnx.TensorProto.FLOAT))
            graph.output.append(onnx.ValueInfoProto(name=f"{name}_edge" if edge else name))
        return self._model(graph, version)

    def _model(self, graph: onnx.GraphProto, version: int) -> onnx.ModelProto:
        opset = schemas.opset_of(self.domain, self.op_type, version)
        assert opset is not None, f"no model of opset 7 or newer has {self.op_type} {version}"
        if (
            self.opset is not None
            and schemas.resolve(self.domain, self.op_type, self.opset) == version
        ):
            opset = self.opset
        if any(n.op_type == "Cast" and n.domain == "" for n in graph.node) and not self.domain:
            opset = _cast_opset(self, version, opset)
        imports = [oh.make_opsetid("", opset if not self.domain else 21)]
        if self.domain:
            imports.append(oh.make_opsetid(self.domain, opset))
        model = oh.make_model(graph, opset_imports=imports)
        model.ir_version = max(8, min(oh.find_min_ir_version_for(imports[:1]), 13))
        return model


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    """The attribute; an empty list is one of integers."""
    kind = onnx.AttributeProto.INTS if value == [] else None
    return oh.make_attribute(name, value, attr_type=kind)


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return oh.make_node("Cast", [source], [target], f"cast_{target}", to=to)


def _cast_opset(c: Case, version: int, opset: int) -> int:
    """An opset that has bfloat16 in Cast, which is 13, if the version lasts that long."""
    return 13 if opset < 13 and schemas.resolve(c.domain, c.op_type, 13) == version else opset


def case(
    op_type: str,
    *inputs: Input,
    domain: str = "",
    opset: int | None = None,
    oldest: int = 0,
    outputs: int | Sequence[int] = 1,
    id: str = "",
    dtypes: Sequence[str] | None = None,
    tolerance: Tolerance | None = None,
    reference: Callable[..., Any] | None = None,
    holds: Callable[..., None] | None = None,
    view: Callable[[list[Array]], Sequence[Array]] | None = None,
    **attributes: Any,
) -> Case:
    """One call of an operator.

    Args:
        op_type: the operator.
        *inputs: in the schema's order.
        domain: "" for ai.onnx, `MS` or `ML`.
        opset: chooses the translation when there are several; the newest when left out.
        oldest: the first version of the translation that has this form.
        outputs: how many, or for each whether it is wanted.
        id: names the case where its attributes do not.
        dtypes: tries only these, for values that make no sense in others.
        tolerance: see `loose`.
        reference: computes the outputs from the inputs where no other reference can.
        holds: asserts something of (inputs, outputs) instead, for ops without one right answer.
        view: takes the part of the outputs that the operator defines.
        **attributes: the node's attributes.
    """
    wanted = (True,) * outputs if isinstance(outputs, int) else tuple(bool(o) for o in outputs)
    return Case(
        op_type,
        inputs,
        domain,
        opset,
        oldest,
        wanted,
        id,
        None if dtypes is None else frozenset(dtypes),
        tolerance,
        reference,
        holds,
        view,
        attributes,
    )


def onnx_code(dtype: str) -> int:
    """The TensorProto.DataType of an ONNX name."""
    return ONNX_CODES[dtype]


__all__ = [
    "HALVES",
    "ML",
    "MS",
    "ROUNDS",
    "Array",
    "Case",
    "Dim",
    "Input",
    "K",
    "L",
    "M",
    "N",
    "case",
    "const",
    "ints",
    "loose",
    "numpy_dtype",
    "omitted",
    "onnx_code",
    "rand",
    "values",
]
