"""Cutting a large partition where few values cross, as between the layers of a decoder.

A part of a plan is traced, kept and given back to ONNX Runtime by itself, and what it makes for the
next one crosses between them. Where to cut is seen from the data flow: between two layers there is
the residual stream and little else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from .node import Graph
from .partition import names_read

METADATA: Final = "ort_mlx.layer_cuts"  # a model's own choice, in its metadata_props
AS_THE_MODEL_SAYS: Final = -1


def asked(option: int, graph: Graph) -> int:
    """How many cuts are wanted: the option, else what the model says of itself, else none.

    Raises:
        ValueError: what the model says is no such number.
    """
    if option != AS_THE_MODEL_SAYS:
        return option
    text = graph.metadata.get(METADATA, "0")
    if not text.isdecimal():
        raise ValueError(f"the model's metadata '{METADATA}' is a number of cuts, not '{text}'")
    return int(text)


def cut_largest(
    graph: Graph, groups: Sequence[tuple[int, ...]], cuts: int
) -> list[tuple[int, ...]]:
    """The groups, the largest of them in up to `cuts` + 1 parts of about equal numbers of nodes.

    Parts follow each other in the order of the graph, so each is convex as the group was.
    """
    if cuts == 0 or not groups:
        return list(groups)
    largest = max(groups, key=len)
    return sorted([*(g for g in groups if g is not largest), *_parts(graph, largest, cuts)])


def _parts(graph: Graph, group: tuple[int, ...], cuts: int) -> list[tuple[int, ...]]:
    crossing = _crossing(graph, group)
    count = len(group)
    cuts = min(cuts, count - 1)
    reach = count // (2 * (cuts + 1))
    edges = {0, count}
    for part in range(1, cuts + 1):
        middle = part * count // (cuts + 1)
        near = range(max(1, middle - reach), min(count, middle + reach + 1))
        edges.add(min(near, key=lambda at: (crossing[at], abs(at - middle)), default=count))
    return [group[first:last] for first, last in pairwise(sorted(edges))]


def _crossing(graph: Graph, group: tuple[int, ...]) -> list[int]:
    """For each place in the group: how many of its values are made before it and read after."""
    made: dict[str, int] = {}
    last_read: dict[str, int] = {}
    for at, index in enumerate(group):
        node = graph.nodes[index]
        for name in names_read(node):
            if name in made:
                last_read[name] = at
        made.update((v.name, at) for v in node.outputs if v is not None)
    change = [0] * (len(group) + 2)
    for name, last in last_read.items():
        change[made[name] + 1] += 1
        change[last + 1] -= 1
    total, crossing = 0, []
    for step in change[: len(group) + 1]:
        total += step
        crossing.append(total)
    return crossing
