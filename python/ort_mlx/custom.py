"""Operators of the user's own: a Python function on MLX arrays that any model may use as a node.

Source: ONNX Runtime's custom operators, through the domains that an execution provider offers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Final, TypeAlias, TypeVar

import mlx.core as mx

from . import _native
from .dtypes import MLX_DTYPES, ORT_CODES, ORT_NAMES
from .errors import OrtMlxError
from .node import Node, Value
from .registry import Claim, LessSafe, OpDef, Prepare, op
from .safety import PER_SHAPE, Safety
from .tracing import tracing

Dims: TypeAlias = "tuple[int | str | None, ...]"
Given: TypeAlias = "Sequence[tuple[str, Dims | None] | None]"
Outputs: TypeAlias = "Sequence[tuple[str, Dims | None]]"
F = TypeVar("F", bound=Callable[..., Any])

# Sizes that stand for symbolic dimensions while shapes are inferred: primes, so that a product or a
# sum of them is not taken for one.
_STAND_INS: Final = (10_007, 10_009, 10_037, 10_039, 10_061, 10_067, 10_069, 10_079, 10_091, 10_093)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def custom_op(
    domain: str,
    name: str,
    *,
    since: int = 1,
    outputs: int = 1,
    types: Mapping[str, frozenset[str] | set[str]] | None = None,
    infer: Callable[..., Outputs] | None = None,
    safety: Safety = PER_SHAPE,
    claim: Claim | None = None,
    prepare: Mapping[str | tuple[str, ...], Prepare] | None = None,
    less_safe: LessSafe | None = None,
) -> Callable[[F], F]:
    """Make a Python function the operator `domain::name` of every model opened from now on.

    The signature is the schema, as for the built-in operators: positional parameters are the inputs
    (`mx.array`; a default of None makes one optional; `*name` takes any number), keyword-only ones
    are the attributes with their defaults, and a parameter annotated with a type of `ort_mlx.hosts`
    arrives as a Python value. The function returns an array, or a tuple of `outputs` arrays.

    Args:
        domain: the operator's domain in the model; not one of ONNX's own.
        name: the operator's type in the model.
        since: the version of the domain from which this is the operator.
        outputs: how many outputs it has.
        types: parameter name to the dtypes it takes ("float32", ...); one left out takes any.
        infer: the dtype and dimensions of each output. It is called like the function, with a
            (dtype, dims) pair for each input. Without it the function is traced on inputs of the
            known sizes, with large primes for symbolic ones.
        safety: see docs/safety.md.
        claim: yields a sentence for each reason to decline a node.
        prepare: as in `ort_mlx.registry.op`.
        less_safe: as in `ort_mlx.registry.op`.

    Raises:
        OrtMlxError: the domain or the name cannot be used, or is registered already.
    """
    if domain in ("", "ai.onnx", "ai.onnx.ml", "com.microsoft") or not _NAME.fullmatch(domain):
        raise OrtMlxError(f"'{domain}' cannot be the domain of a custom operator; use your own")
    if not _NAME.fullmatch(name):
        raise OrtMlxError(f"'{name}' cannot be the name of an operator")

    def register(fn: F) -> F:
        made = OpDef(domain, name, (since,), fn, safety)
        inference = Inference(made, outputs, infer)
        try:
            op(
                name,
                domain=domain,
                since=(since,),
                types={k: frozenset(v) for k, v in (types or {}).items()},
                safety=safety,
                claim=inference.claim(claim),
                prepare=prepare,
                less_safe=less_safe,
            )(fn)
        except ValueError as error:
            raise OrtMlxError(str(error)) from error
        variadic = any(p.variadic for p in made.params)
        required = sum(p.required for p in made.params)
        _native.add_custom_op(
            domain,
            name,
            since,
            required,
            len(made.params) - required - variadic,
            variadic,
            outputs,
            inference,
        )
        return fn

    return register


@dataclass(frozen=True)
class Inference:
    """What ORT asks while it loads a model: the types and dimensions of a node's outputs."""

    opdef: OpDef
    outputs: int
    infer: Callable[..., Outputs] | None

    @property
    def attributes(self) -> list[str]:
        """The attributes to look up."""
        return list(self.opdef.attributes)

    def __call__(
        self, inputs: list[tuple[int, Dims | None] | None], attributes: dict[str, Any]
    ) -> list[tuple[int, list[int] | None, list[str]]]:
        """Element type, sizes (-1 for a symbol) and symbols of each output."""
        given = [None if i is None else (ORT_NAMES[i[0]], i[1]) for i in inputs]
        return [_encoded(dtype, dims) for dtype, dims in self._inferred(given, attributes)]

    def claim(self, users: Claim | None) -> Claim:
        """The user's claim, and that the outputs are what the model says.

        ORT goes on without a type when inference fails, so the reason is given here.
        """

        def reasons(node: Node) -> Iterator[str]:
            if users is not None:
                yield from users(node)
            given = [None if v is None else (v.dtype, v.shape) for v in node.inputs]
            try:
                found = self._inferred(given, dict(node.attributes))
            except OrtMlxError as error:
                yield str(error)
                return
            for value, (dtype, _) in zip(node.outputs, found, strict=False):
                if value is not None and value.dtype != dtype:
                    yield f"'{value.name}' is {dtype}, and {value.dtype} in the model"

        return reasons

    def _inferred(self, given: Given, attributes: dict[str, Any]) -> Outputs:
        if self.infer is None:
            found = self._traced(given, attributes)
        else:
            found = self.infer(*given, **attributes)
        if len(found) != self.outputs:
            raise OrtMlxError(
                f"{self.opdef} has {self.outputs} outputs, {len(found)} were inferred"
            )
        return found

    def _traced(self, given: Given, attributes: dict[str, Any]) -> Outputs:
        stand_ins: dict[str, int] = {}
        try:
            arguments = [self._placeholder(i, g, stand_ins) for i, g in enumerate(given)]
            keywords = {**self._defaults(), **attributes}
            if self.opdef.wants_node:
                keywords["node"] = self._node(given, attributes)
            with tracing():
                made = self.opdef.fn(*arguments, **keywords)
        except Exception as error:
            raise OrtMlxError(
                f"{self.opdef}: its outputs cannot be inferred by tracing it ({error}); "
                "give custom_op an `infer` function"
            ) from error
        symbols = {size: symbol for symbol, size in stand_ins.items()}
        return [
            (_dtype_name(a.dtype), tuple(_dim(size, symbols) for size in a.shape))
            for a in (made if isinstance(made, tuple) else (made,))
        ]

    def _placeholder(
        self, index: int, given: tuple[str, Dims | None] | None, stand_ins: dict[str, int]
    ) -> mx.array | None:
        if given is None:
            return None
        dtype, dims = given
        param = self.opdef.param(index)
        if param is not None and param.host is not None:
            raise OrtMlxError(f"'{param.name}' is only known when the model runs")
        if dims is None:
            raise OrtMlxError(f"the rank of input {index} is unknown")
        sizes = [d if isinstance(d, int) else self._stand_in(d, index, stand_ins) for d in dims]
        return _native.placeholder(sizes, mx.zeros((1,), dtype=MLX_DTYPES[dtype]))

    def _stand_in(self, dim: str | None, index: int, stand_ins: dict[str, int]) -> int:
        symbol = dim or f"unknown {index} {len(stand_ins)}"
        if symbol not in stand_ins:
            if len(stand_ins) == len(_STAND_INS):
                raise OrtMlxError("there are too many symbolic dimensions")
            stand_ins[symbol] = _STAND_INS[len(stand_ins)]
        return stand_ins[symbol]

    def _defaults(self) -> dict[str, Any]:
        return {k: v for k, v in self.opdef.attributes.items() if v is not Parameter.empty}

    def _node(self, given: Given, attributes: dict[str, Any]) -> Node:
        values = tuple(None if g is None else Value(f"input {i}", *g) for i, g in enumerate(given))
        outputs = tuple(Value(f"output {i}", "undefined", None) for i in range(self.outputs))
        o = self.opdef
        names = tuple(p.name for p in o.params)
        return Node(0, o.name, o.domain, o.name, o.since[0], values, outputs, attributes, {}, names)


def _dtype_name(dtype: mx.Dtype) -> str:
    for name, known in MLX_DTYPES.items():
        if known == dtype:
            return name
    raise OrtMlxError(f"ONNX has no element type for {dtype}")


def _dim(size: int, symbols: Mapping[int, str]) -> int | str | None:
    if size in symbols:
        symbol = symbols[size]
        return None if symbol.startswith("unknown ") else symbol
    return None if size >= _STAND_INS[0] and symbols else size


def _encoded(dtype: str, dims: Dims | None) -> tuple[int, list[int] | None, list[str]]:
    if dims is None:
        return ORT_CODES[dtype], None, []
    sizes = [d if isinstance(d, int) else -1 for d in dims]
    return ORT_CODES[dtype], sizes, [d if isinstance(d, str) else "" for d in dims]
