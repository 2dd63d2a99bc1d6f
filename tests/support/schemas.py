"""Operator schemas from onnx and, where it has its own, from ONNX Runtime, in one form.

onnx knows ai.onnx and ai.onnx.ml; ORT knows com.microsoft and a few operators of ai.onnx that the
standard does not have.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import onnx
import onnx.defs
import onnxruntime.capi.onnxruntime_pybind11_state as ort_state

REQUIRED = inspect.Parameter.empty
_ONNX_NAMES = {"float": "float32", "double": "float64"}


@dataclass(frozen=True)
class Formal:
    """One input or output of a schema."""

    name: str
    option: str  # Single, Optional or Variadic
    types: frozenset[str]


@dataclass(frozen=True)
class Schema:
    """One version of one operator."""

    domain: str
    name: str
    since: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    deprecated: bool  # by ORT, which then refuses the model
    attributes: Mapping[str, Any]  # the default; REQUIRED or None when there is none

    def input_types(self, index: int) -> frozenset[str]:
        """What the schema allows for an input, a variadic one included."""
        return self.inputs[min(index, len(self.inputs) - 1)].types


@functools.cache
def all_schemas() -> Mapping[tuple[str, str, int], Schema]:
    """Every schema by domain, name and version; onnx's where both have it."""
    found = {
        (s.domain, s.name, s.since_version): s
        for s in [
            *(s for s in ort_state.get_all_operator_schema()),
            *onnx.defs.get_all_schemas_with_history(),
        ]
    }
    refused = {
        (s.domain, s.name, s.since_version): s.deprecated
        for s in ort_state.get_all_operator_schema()
    }
    return {
        key: replace(_converted(schema), deprecated=refused.get(key, False))
        for key, schema in found.items()
    }


@functools.cache
def versions(domain: str, name: str) -> tuple[int, ...]:
    """Every version of an operator, oldest first."""
    return tuple(sorted(v for d, n, v in all_schemas() if (d, n) == (domain, name)))


def resolve(domain: str, name: str, opset: int) -> int:
    """The schema version that a model of this opset gets."""
    return max(v for v in versions(domain, name) if v <= opset)


def opset_of(domain: str, name: str, version: int) -> int | None:
    """An opset whose models get this version; None when only opsets below 7 do, or ORT refuses."""
    if all_schemas()[domain, name, version].deprecated:
        return None
    opset = version if domain else max(version, 7)
    return opset if resolve(domain, name, opset) == version else None


def _converted(schema: Any) -> Schema:
    constraints = {
        c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints
    }

    def formal(f: Any) -> Formal:
        option = str(f.option).rsplit(".", 1)[-1]
        strings = constraints.get(_type_string(f), frozenset({_type_string(f)}))
        return Formal(f.name, option, frozenset(_dtype(t) for t in strings))

    return Schema(
        schema.domain,
        schema.name,
        schema.since_version,
        tuple(formal(f) for f in schema.inputs),
        tuple(formal(f) for f in schema.outputs),
        False,
        {name: _default(a) for name, a in schema.attributes.items()},
    )


def _type_string(formal: Any) -> str:
    return str(getattr(formal, "type_str", None) or formal.typeStr)


def _dtype(type_string: str) -> str:
    if not type_string.startswith("tensor("):
        return type_string
    inner = type_string.removeprefix("tensor(").removesuffix(")")
    return _ONNX_NAMES.get(inner, inner)


def _default(attribute: Any) -> Any:
    if attribute.required:
        return REQUIRED
    proto = getattr(attribute, "default_value", None)
    if proto is None:
        raw = attribute._default_value
        proto = onnx.AttributeProto.FromString(raw) if raw else onnx.AttributeProto()
    if not proto.name and not proto.type:
        return None
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value
