"""A tree ensemble as flat arrays over the nodes of all trees, built once for each ONNX node."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import mlx.core as mx

from ..node import Node

_MODES: Final[dict[str, Callable[[mx.array, mx.array], mx.array]]] = {
    "BRANCH_LEQ": mx.less_equal,
    "BRANCH_LT": mx.less,
    "BRANCH_GTE": mx.greater_equal,
    "BRANCH_GT": mx.greater,
    "BRANCH_EQ": mx.equal,
    "BRANCH_NEQ": mx.not_equal,
}
_MEMBER: Final = "BRANCH_MEMBER"
_MODE_NAMES: Final = (*_MODES, _MEMBER)  # as TreeEnsemble numbers them
_BUILT: Final[WeakKeyDictionary[Node, Forest]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Forest:
    """Node tables; a leaf leads to itself, so walking on from one changes nothing."""

    roots: mx.array  # [trees]
    depth: int
    features: int  # how many a sample has to have
    modes: tuple[str, ...]  # those that occur
    mode: mx.array  # [nodes], an index into modes
    feature: mx.array
    threshold: mx.array
    yes: mx.array
    no: mx.array
    missing: mx.array | None  # whether NaN takes the true branch
    weights: mx.array  # [nodes, targets]
    voted: mx.array  # [nodes, targets], whether there is a weight at all
    members: mx.array | None  # [nodes, most], the set that a node tests, filled up with NaN

    def walk(self, x: mx.array) -> mx.array:
        """The leaf in which each sample [batch, features] ends in each tree, [batch, trees]."""
        if x.shape[1] < self.features:
            raise ValueError(f"the trees read {self.features} features: got shape {x.shape}")
        at = mx.broadcast_to(self.roots, (x.shape[0], self.roots.size))
        for _ in range(self.depth):
            value = mx.take_along_axis(x, self.feature[at], axis=1)
            at = mx.where(self._holds(value, at), self.yes[at], self.no[at])
        return at

    def _holds(self, value: mx.array, at: mx.array) -> mx.array:
        holds = self._tests(self.modes[0], value, at)
        if len(self.modes) > 1:
            mode = self.mode[at]
            for index, name in enumerate(self.modes[1:], start=1):
                holds = mx.where(mode == index, self._tests(name, value, at), holds)
        return holds if self.missing is None else holds | (mx.isnan(value) & self.missing[at])

    def _tests(self, mode: str, value: mx.array, at: mx.array) -> mx.array:
        if self.members is not None and mode == _MEMBER:
            return (mx.expand_dims(value, -1) == self.members[at]).any(axis=-1)
        return _MODES[mode](value, self.threshold[at])


def decline_forest(node: Node, build: Callable[[], Forest]) -> Iterator[str]:
    """The claim shared by all ensembles: the nodes are trees, over features that there are."""
    try:
        forest = build()
    except (LookupError, TypeError, ValueError):
        yield "the nodes are not those of trees"
        return
    features = node.dims("x")[-1:]
    if features and isinstance(features[0], int) and features[0] < forest.features:
        yield "a node reads a feature that the input lacks"


def forest_of(node: Node, votes: str, targets: int) -> Forest:
    """The forest of the attributes `nodes_*` and `<votes>_*`, with nodes numbered by tree."""
    if (built := _BUILT.get(node)) is None:
        built = _BUILT[node] = _from_ids(node.attr, votes, targets)
    return built


def _from_ids(attr: Callable[..., Any], votes: str, targets: int) -> Forest:
    trees, ids = attr("nodes_treeids"), attr("nodes_nodeids")
    place = {key: index for index, key in enumerate(zip(trees, ids, strict=True))}
    modes = attr("nodes_modes")
    yes, no = list(range(len(ids))), list(range(len(ids)))
    for index, (tree, mode) in enumerate(zip(trees, modes, strict=True)):
        if mode != "LEAF":
            yes[index] = place[tree, attr("nodes_truenodeids")[index]]
            no[index] = place[tree, attr("nodes_falsenodeids")[index]]
    children = {c for i, pair in enumerate(zip(yes, no, strict=True)) for c in pair if c != i}
    entries = zip(
        (
            place[key]
            for key in zip(attr(f"{votes}_treeids"), attr(f"{votes}_nodeids"), strict=True)
        ),
        attr(f"{votes}_ids"),
        attr(f"{votes}_weights"),
        strict=True,
    )
    return _flatten(
        [index for index in range(len(ids)) if index not in children],
        [mode if mode != "LEAF" else None for mode in modes],
        (attr("nodes_featureids"), attr("nodes_values"), yes, no),
        attr("nodes_missing_value_tracks_true"),
        list(entries),
        targets,
    )


def from_positions(node: Node, targets: int) -> Forest:
    """The forest of a TreeEnsemble, whose nodes and leaves are numbered by position."""
    if (built := _BUILT.get(node)) is None:
        built = _BUILT[node] = _from_positions(node.attr, targets)
    return built


def _from_positions(attr: Callable[..., Any], targets: int) -> Forest:
    modes = attr("nodes_modes").reshape(-1).tolist()
    inner, leaves = len(modes), len(attr("leaf_targetids"))
    ends = range(inner, inner + leaves)  # leaves follow the inner nodes
    yes, no = (
        [
            i + inner * leaf
            for i, leaf in zip(attr(f"nodes_{b}nodeids"), attr(f"nodes_{b}leafs"), strict=True)
        ]
        for b in ("true", "false")
    )
    weights = attr("leaf_weights").reshape(-1).tolist()
    splits = attr("nodes_splits").reshape(-1).tolist()
    is_double = attr("nodes_splits").dtype.name == "float64"
    missing = attr("nodes_missing_value_tracks_true")
    return _flatten(
        list(attr("tree_roots")),
        [_MODE_NAMES[mode] for mode in modes] + [None] * leaves,
        (
            [*attr("nodes_featureids"), *[0] * leaves],
            splits + [0.0] * leaves,
            [*yes, *ends],
            [*no, *ends],
        ),
        [*missing, *[0] * leaves] if missing else None,
        list(zip(ends, attr("leaf_targetids"), weights, strict=True)),
        targets,
        mx.float64 if is_double else mx.float32,
        _sets(modes, attr("membership_values"), leaves),
    )


def _sets(modes: list[int], values: Any, leaves: int) -> list[list[float]] | None:
    """The set of each node; they follow each other, each ended by a NaN."""
    if values is None or _MODE_NAMES.index(_MEMBER) not in modes:
        return None
    sets: list[list[float]] = [[]]
    for value in values.reshape(-1).tolist():
        if math.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    taken = iter(sets)
    found = [next(taken) if _MODE_NAMES[mode] == _MEMBER else [] for mode in modes]
    most = max(len(members) for members in found)
    return [m + [math.nan] * (most - len(m)) for m in [*found, *[[]] * leaves]]


def _flatten(
    roots: list[int],
    modes: list[str | None],
    tables: tuple[Sequence[int], Sequence[float], list[int], list[int]],
    missing: Sequence[int] | None,
    entries: list[tuple[int, int, float]],
    targets: int,
    dtype: mx.Dtype = mx.float32,
    members: list[list[float]] | None = None,
) -> Forest:
    feature, threshold, yes, no = tables
    read = [f for f, mode in zip(feature, modes, strict=True) if mode is not None]
    _require(roots, len(modes))
    _require([*yes, *no], len(modes))
    _require(read, max(read, default=0) + 1)
    _require([target for _, target, _ in entries], targets)
    present = tuple(dict.fromkeys(m for m in modes if m is not None)) or ("BRANCH_LEQ",)
    weights = [0.0] * (len(modes) * targets)
    voted = [False] * (len(modes) * targets)
    for place, target, weight in entries:
        weights[place * targets + target] += weight
        voted[place * targets + target] = True
    return Forest(
        roots=mx.array(roots),
        depth=_depth(roots, yes, no),
        features=max(read, default=-1) + 1,
        modes=present,
        mode=mx.array([0 if m is None else present.index(m) for m in modes]),
        feature=mx.array([0 if m is None else f for f, m in zip(feature, modes, strict=True)]),
        threshold=mx.array(list(threshold), dtype=dtype),
        yes=mx.array(yes),
        no=mx.array(no),
        missing=mx.array([bool(m) for m in missing]) if missing and any(missing) else None,
        weights=mx.array(weights, dtype=dtype).reshape(len(modes), targets),
        voted=mx.array(voted).reshape(len(modes), targets),
        members=None if members is None else mx.array(members, dtype=dtype),
    )


def _depth(roots: list[int], yes: list[int], no: list[int]) -> int:
    """The number of steps that reach a leaf in every tree."""
    depth, level = 0, set(roots)
    while level := {c for i in level for c in (yes[i], no[i]) if c != i}:
        depth += 1
        if depth > len(yes):
            raise ValueError("the nodes go round in a circle")
    return depth


def _require(places: Sequence[int], count: int) -> None:
    if any(not 0 <= place < count for place in places):
        raise ValueError(f"a place outside of {count}")
