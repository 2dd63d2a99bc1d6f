"""Nodes, values and graphs as plain frozen data, built once from ORT's graph.

Nothing here refers to ORT any more: a Graph outlives the callback in which it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from .hosts import HostValue

Dim = int | str | None  # a size, a symbol, or unknown


@dataclass(frozen=True, eq=False)
class Constant:
    """An initializer. Both readers copy, and work only while ORT's graph is alive."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    load: Callable[[], HostValue]
    load_array: Callable[[], mx.array]


@dataclass(frozen=True, eq=False)
class Value:
    """A named tensor between nodes; `shape` is None when not even the rank is known."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None
    constant: Constant | None = None

    @property
    def rank(self) -> int | None:
        """The number of dimensions; None when it is not known."""
        return None if self.shape is None else len(self.shape)


@dataclass(frozen=True, eq=False)
class Node:
    """One operator call. `inputs` and `outputs` hold None where the model omits one."""

    index: int
    name: str
    domain: str
    op_type: str
    since_version: int
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]
    bodies: Mapping[str, Graph] = field(default_factory=dict)
    param_names: tuple[str, ...] = ()  # set by the claim, so that inputs can be asked for by name

    def __str__(self) -> str:
        return f"{self.op_type} '{self.name}'"

    def input(self, name: str) -> Value | None:
        """The input bound to the op's parameter `name`; None when the model omits it."""
        index = self.param_names.index(name)
        return self.inputs[index] if index < len(self.inputs) else None

    def missing(self, name: str) -> bool:
        """Whether the model omits the input."""
        return self.input(name) is None

    def const(self, name: str) -> tuple[Any, ...] | None:
        """The input's elements, flattened, when it is a constant; else None."""
        value = self.input(name)
        if value is None or value.constant is None:
            return None
        return tuple(value.constant.load().reshape(-1).tolist())

    def rank(self, name: str) -> int | None:
        """The input's rank, or None when it is omitted or unknown."""
        value = self.input(name)
        return None if value is None else value.rank

    def dims(self, name: str) -> tuple[Dim, ...]:
        """The input's dimensions; an empty tuple when nothing is known of them."""
        value = self.input(name)
        return () if value is None or value.shape is None else value.shape

    def dtype(self, name: str) -> str | None:
        """The input's dtype, or None when it is omitted."""
        value = self.input(name)
        return None if value is None else value.dtype

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute as a Python value, or `default` when the model does not set it."""
        return self.attributes.get(name, default)


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph or a body: `inputs` without the initializers, nodes in topological order."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
