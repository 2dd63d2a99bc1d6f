"""Group claimed nodes into maximal convex partitions, in time linear in the size of the graph.

Every claimed node gets a level: the largest number of times a path into it leaves the claimed nodes
and comes back. Nodes of one level have no path between them through an unclaimed node, so the
connected pieces of a level are convex, and levels never decrease along an edge, so partitions
cannot depend on each other in a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .dtypes import FLOATS
from .node import Graph, Node, Value


@dataclass(frozen=True)
class Partition:
    """A convex group of claimed nodes, by their positions in the graph."""

    nodes: tuple[int, ...]
    drops_initializers: bool = False  # whether ORT may free the constants this group uses


def convex_groups(
    predecessors: Sequence[Iterable[int]], claimed: Sequence[bool]
) -> list[tuple[int, ...]]:
    """Group the claimed nodes of a graph given in topological order.

    Args:
        predecessors: for each node, the nodes it reads from, all at smaller positions.
        claimed: for each node, whether it may be in a group.

    Returns:
        Disjoint ascending groups that cover the claimed nodes; each is convex, and contracting all
        of them leaves an acyclic graph.
    """
    levels = _earliest_levels(predecessors, claimed)
    pieces = _connected(predecessors, claimed, levels)
    _delay(predecessors, claimed, levels, pieces)
    return _collect(_connected(predecessors, claimed, levels), claimed)


def _earliest_levels(predecessors: Sequence[Iterable[int]], claimed: Sequence[bool]) -> list[int]:
    levels = [0] * len(claimed)
    for node, before in enumerate(predecessors):
        comes_back = claimed[node]
        levels[node] = max(
            (levels[p] + (1 if comes_back and not claimed[p] else 0) for p in before), default=0
        )
    return levels


def _connected(
    predecessors: Sequence[Iterable[int]], claimed: Sequence[bool], levels: Sequence[int]
) -> list[int]:
    """The representative of each node's connected piece of its level (itself when unclaimed)."""
    parent = list(range(len(claimed)))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node, before in enumerate(predecessors):
        for p in before:
            if claimed[node] and claimed[p] and levels[node] == levels[p]:
                parent[root(node)] = root(p)
    return [root(node) for node in range(len(claimed))]


def _delay(
    predecessors: Sequence[Iterable[int]],
    claimed: Sequence[bool],
    levels: list[int],
    pieces: Sequence[int],
) -> None:
    """Raise a piece to the level of the piece that reads it, where every reader allows that.

    This joins a side branch that is ready early to the partition that uses it.
    """
    last = max(levels, default=0)
    latest = [last] * len(
        claimed
    )  # for each piece, or unclaimed node: the latest level it may take
    reader = [last + 1] * len(claimed)  # for each piece: the lowest level of a claimed reader
    members: dict[int, list[int]] = {}
    for node in range(len(claimed)):
        members.setdefault(pieces[node], []).append(node)
    # Pieces in an order where readers come first: levels descend, and within a level an unclaimed
    # node is handled by position. Across pieces of one level there are only unclaimed nodes.
    order = sorted(members, key=lambda piece: (levels[piece], members[piece][-1]), reverse=True)
    for piece in _readers_first(order, predecessors, pieces, members):
        if claimed[piece] and reader[piece] <= latest[piece]:
            for node in members[piece]:
                levels[node] = reader[piece]
        bound = levels[piece] if claimed[piece] else latest[piece]
        for node in members[piece]:
            for p in predecessors[node]:
                source = pieces[p]
                if source == piece:
                    continue
                allowed = bound - (1 if claimed[piece] and not claimed[p] else 0)
                latest[source] = min(latest[source], allowed)
                if claimed[piece] and claimed[p]:
                    reader[source] = min(reader[source], bound)


def _readers_first(
    order: Sequence[int],
    predecessors: Sequence[Iterable[int]],
    pieces: Sequence[int],
    members: dict[int, list[int]],
) -> list[int]:
    """The pieces in reverse topological order of the contracted graph (Kahn)."""
    sources = {
        piece: {pieces[p] for node in nodes for p in predecessors[node]} - {piece}
        for piece, nodes in members.items()
    }
    readers_left = dict.fromkeys(order, 0)
    for before in sources.values():
        for source in before:
            readers_left[source] += 1
    ready = [piece for piece in order if readers_left[piece] == 0]
    done = []
    while ready:
        piece = ready.pop()
        done.append(piece)
        for source in sources[piece]:
            readers_left[source] -= 1
            if readers_left[source] == 0:
                ready.append(source)
    return done


def _collect(pieces: Sequence[int], claimed: Sequence[bool]) -> list[tuple[int, ...]]:
    groups: dict[int, list[int]] = {}
    for node, piece in enumerate(pieces):
        if claimed[node]:
            groups.setdefault(piece, []).append(node)
    return sorted(tuple(group) for group in groups.values())


def partition(
    graph: Graph, claimed: Sequence[bool], *, keep_islands: bool
) -> list[tuple[int, ...]]:
    """The partitions of a graph; islands that only do shape arithmetic are left out."""
    before = predecessors_of(graph)
    groups = convex_groups(before, claimed)
    whole = sum(len(group) for group in groups) == len(graph.nodes)
    if not (keep_islands or whole):
        groups = [g for g in groups if not _is_island([graph.nodes[i] for i in g])]
    return join(before, groups, len(graph.nodes))


def join(
    predecessors: Sequence[Iterable[int]], groups: list[tuple[int, ...]], count: int
) -> list[tuple[int, ...]]:
    """Join groups that have no path between them through another node.

    Args:
        predecessors: as for `convex_groups`.
        groups: some of its groups.
        count: how many nodes the graph has.

    Returns:
        Fewer groups of the same nodes, convex and free of cycles like those given.
    """
    kept = [False] * count
    for group in groups:
        for node in group:
            kept[node] = True
    levels = _earliest_levels(predecessors, kept)
    _delay(predecessors, kept, levels, _connected(predecessors, kept, levels))
    by_level: dict[int, list[int]] = {}
    for node in range(count):
        if kept[node]:
            by_level.setdefault(levels[node], []).append(node)
    return [tuple(by_level[level]) for level in sorted(by_level)]


def predecessors_of(graph: Graph) -> list[set[int]]:
    """For each node, the nodes it reads from, implicit inputs of its bodies included."""
    producer: dict[str, int] = {}
    result = []
    for index, node in enumerate(graph.nodes):
        result.append({producer[name] for name in names_read(node) if name in producer})
        for value in node.outputs:
            if value is not None:
                producer[value.name] = index
    return result


def names_read(node: Node) -> set[str]:
    """The names a node reads: its inputs, and what its bodies take from outside."""
    names = {v.name for v in node.inputs if v is not None}
    for body in node.bodies.values():
        inner: set[str] = set()
        made = {v.name for v in body.inputs}
        for step in body.nodes:
            inner |= names_read(step) - made
            made |= {v.name for v in step.outputs if v is not None}
        names |= inner | ({v.name for v in body.outputs} - made)
    return names


def _is_island(nodes: Sequence[Node]) -> bool:
    """Whether the group only makes small host-like values, which cannot pay for two crossings."""
    return all(
        not node.bodies and all(v is None or _is_shape_like(v) for v in node.outputs)
        for node in nodes
    )


def _is_shape_like(value: Value) -> bool:
    return value.dtype not in FLOATS and value.rank is not None and value.rank <= 1
