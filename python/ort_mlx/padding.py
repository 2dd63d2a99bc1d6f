"""Whether a dimension of the model may be padded, proven on the graph of a partition.

An op that declares `padding` says where positions along a padded axis go: the axis of its outputs
along which position i depends on no other position of the inputs than i. It raises `Mixes` where
there is none, and an op that declares nothing mixes. Numbers that are computed from shapes are
followed as well, as far as the padded size stays a number of its own in them. A dimension may be
padded when every op that meets it says so, up to the outputs, where what was added is cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from .buckets import Buckets
from .claim import bind
from .dtypes import NARROW
from .node import Graph, Node, Value


class Size:
    """Stands for the padded size among numbers that are computed from shapes."""


SIZE: Final = Size()
Numbers: TypeAlias = "tuple[int | Size | None, ...]"  # None: any that does not depend on the size
Carried: TypeAlias = "int | Numbers | None"  # the padded axis of a value, or the numbers in it
Axes: TypeAlias = tuple[Carried, ...]  # of each input
Padding: TypeAlias = Callable[[Node, Axes], Carried]
Place: TypeAlias = tuple[int, int]  # which array, which axis


class Mixes(Exception):
    """Positions along a padded axis would be mixed, or nothing shows that they are not."""


@dataclass(frozen=True)
class Padded:
    """A dimension that is padded, as the native layer wants it: see cpp/padding.h."""

    sizes: tuple[int, ...]
    multiple: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]


def prove(
    graph: Graph, buckets: Buckets, array_names: list[str], output_names: Iterable[str]
) -> Padded:
    """The inputs and outputs of a partition that have a dimension, when it may be padded.

    Raises:
        Mixes: it may not; the text names the node.
    """
    carried: dict[str, int | Numbers] = dict(_carriers(graph, buckets.name))
    if not carried:
        raise Mixes("no input of the partition has it")
    if not carried.keys() <= set(array_names):
        raise Mixes("an input with it steers the graph")
    inputs = _places(array_names, carried)
    for node in graph.nodes:
        _follow(node, carried)
    return Padded(buckets.sizes, buckets.multiple, inputs, _places(output_names, carried))


def _places(names: Iterable[str], carried: dict[str, int | Numbers]) -> tuple[Place, ...]:
    places = []
    for i, name in enumerate(names):
        axis = carried.get(name)
        if isinstance(axis, tuple):
            raise Mixes(f"output '{name}' has the size itself in it")
        if axis is not None:
            places.append((i, axis))
    return tuple(places)


def _carriers(graph: Graph, name: str) -> Iterator[tuple[str, int]]:
    for value in graph.inputs:
        axes = [i for i, dim in enumerate(value.shape or ()) if dim == name]
        if len(axes) > 1:
            raise Mixes(f"input '{value.name}' has it twice")
        if axes and value.dtype in NARROW:
            raise Mixes(f"input '{value.name}' has elements that may be packed")
        for axis in axes:
            yield value.name, axis


def _follow(node: Node, carried: dict[str, int | Numbers]) -> None:
    """Say of the node's outputs where they carry the padding."""
    read = set(_names(node.inputs))
    inner = {name for body in node.bodies.values() for name in _read_in(body)}
    if not (read | inner) & carried.keys():
        return
    bound, opdef = bind(node)
    if opdef is None or opdef.padding is None or inner & carried.keys():
        raise Mixes(f"[{node}] may mix positions along it")
    axes = tuple(None if v is None else carried.get(v.name) for v in node.inputs)
    try:
        made = opdef.padding(bound, axes)
    except Mixes as reason:
        raise Mixes(f"[{node}] {reason}") from None
    if made is not None and not (isinstance(made, tuple) and SIZE not in made):
        carried.update((name, made) for name in _names(node.outputs))


def _names(values: Iterable[Value | None]) -> Iterator[str]:
    return (v.name for v in values if v is not None)


def _read_in(graph: Graph) -> Iterator[str]:
    yield from _names(graph.outputs)
    for node in graph.nodes:
        yield from _names(node.inputs)
        for body in node.bodies.values():
            yield from _read_in(body)
