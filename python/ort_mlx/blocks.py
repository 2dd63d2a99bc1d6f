"""A graph or a body made ready to run: slots, steps and constants, without any name left.

A block is built once in Compile. Its steps are in topological order over integer slots. A body is a
block of its own whose captured slots are filled from the frame of the block around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from .claim import bind
from .errors import TranslationError
from .hosts import HostKind, HostValue
from .node import Constant, Graph, Node, Value
from .registry import OpDef
from .safety import SHAPELESS, Safety

ABSENT: Final = -1

# Constants up to this size are also kept on the host, where shapes, axes and bounds are read.
HOST_BYTES: Final = 4096


@dataclass(frozen=True)
class Argument:
    """One input of a step: a slot, or a Python value that is known already."""

    slot: int
    host: HostKind | None = None
    value: Any = None  # the converted value of a constant host parameter


@dataclass(eq=False)
class Step:
    """One op call. A prepare step has no opdef: it applies `fn` to one constant or value."""

    label: str
    fn: Callable[..., Any]
    arguments: tuple[Argument, ...]
    outputs: tuple[int, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    bodies: Mapping[str, Block] = field(default_factory=dict)
    returns_host: bool = False
    deterministic: bool = True
    safety: Safety = SHAPELESS
    safety_reason: str = ""  # why this node allows less than others of its op
    reads_device: bool = False  # a host parameter takes a value that only the device knows
    on_host: bool = (
        False  # evaluated on the host: a host parameter needs it and its inputs are there
    )
    counts: bool = False  # its bodies get the number of the iteration as a host value
    follows_count: bool = False  # a host parameter comes from the number of an iteration
    releases: tuple[int, ...] = ()  # slots that no later step reads

    def reads(self) -> Iterable[int]:
        """Every slot the step reads, those captured by its bodies included."""
        for argument in self.arguments:
            if argument.slot != ABSENT:
                yield argument.slot
        for body in self.bodies.values():
            for outer, _ in body.captured:
                yield outer


ConstantSource: TypeAlias = "Constant | int"  # an initializer to copy, or a kernel input to wrap


@dataclass(eq=False)
class Block:
    """Slots, steps and constants of one graph or body."""

    size: int = 0
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    captured: list[tuple[int, int]] = field(default_factory=list)  # (slot outside, slot here)
    steps: list[Step] = field(default_factory=list)
    constants: dict[int, ConstantSource] = field(default_factory=dict)
    host_constants: dict[int, HostValue] = field(default_factory=dict)
    values: dict[int, Value] = field(default_factory=dict)  # what the model says of a slot
    template: list[Any] = field(default_factory=list)  # a frame with only the constants in it

    @property
    def step_count(self) -> int:
        """The steps, those of bodies included."""
        bodies = (body for step in self.steps for body in step.bodies.values())
        return len(self.steps) + sum(body.step_count for body in bodies)


class BlockBuilder:
    """Builds the block of a graph, resolving names outwards through enclosing builders."""

    def __init__(
        self, graph: Graph, outer: BlockBuilder | None = None, kernel_inputs: tuple[str, ...] = ()
    ) -> None:
        self._graph = graph
        self._outer = outer
        self._kernel_inputs = {name: i for i, name in enumerate(kernel_inputs) if name}
        self._slots: dict[str, int] = {}
        self._prepared: dict[tuple[int, Any], int] = {}
        self.block = Block()

    def build(self) -> Block:
        """Translate every node into steps.

        Raises:
            TranslationError: a node is not translated, or a name has no source.
        """
        block = self.block
        for value in self._graph.inputs:
            block.inputs.append(self._new(value))
        for node in self._graph.nodes:
            self._add(node)
        block.outputs = [self._slot_of(v) for v in self._graph.outputs]
        return block

    def slot_named(self, name: str) -> int | None:
        """The slot of a name that this block itself has, if any."""
        return self._slots.get(name)

    def _new(self, value: Value | None = None) -> int:
        slot = self.block.size
        self.block.size += 1
        if value is not None:
            self._slots[value.name] = slot
            self.block.values[slot] = value
        return slot

    def _slot_of(self, value: Value) -> int:
        if value.name in self._slots:
            return self._slots[value.name]
        if self._outer is not None and self._outer.defines(value.name):
            return self._capture(value, self._outer)
        if value.constant is not None:
            return self._new_constant(value, value.constant)
        if value.name not in self._kernel_inputs:
            raise TranslationError(f"'{value.name}' is read before anything defines it")
        slot = self._new(value)  # an implicit input of a body, which ORT passes to the kernel
        self.block.inputs.append(slot)
        return slot

    def _capture(self, value: Value, outer: BlockBuilder) -> int:
        outside = outer._slot_of(value)
        slot = self._new(value)
        if outside in outer.block.constants:  # a constant here too, so that it can be prepared
            self.block.constants[slot] = outer.block.constants[outside]
            if outside in outer.block.host_constants:
                self.block.host_constants[slot] = outer.block.host_constants[outside]
        else:
            self.block.captured.append((outside, slot))
        return slot

    def defines(self, name: str) -> bool:
        """Whether this block or one around it has a value of this name."""
        if name in self._slots or name in self._kernel_inputs:
            return True
        return self._outer is not None and self._outer.defines(name)

    def _new_constant(self, value: Value, constant: Constant) -> int:
        slot = self._new(value)
        if constant.nbytes <= HOST_BYTES:
            self.block.host_constants[slot] = constant.load()
        kernel_input = self._kernel_inputs.get(value.name)
        small = slot in self.block.host_constants
        self.block.constants[slot] = constant if small or kernel_input is None else kernel_input
        return slot

    def _add(self, node: Node) -> None:
        node, opdef = bind(node)
        if opdef is None:
            raise TranslationError(f"[{node}] is not translated")
        arguments = list(self._arguments(node, opdef))
        for positions, fn in opdef.joint_prepares:
            self._prepare_jointly(node, positions, fn, arguments)
        bodies = {name: BlockBuilder(body, self).build() for name, body in node.bodies.items()}
        outputs = tuple(ABSENT if v is None else self._new(v) for v in node.outputs)
        safety, safety_reason = opdef.safety_of(node)
        self.block.steps.append(
            Step(
                label=str(node),
                fn=opdef.fn,
                arguments=tuple(arguments),
                outputs=outputs,
                keywords=_keywords(node, opdef),
                bodies=bodies,
                returns_host=opdef.returns_host,
                deterministic=opdef.is_deterministic(node),
                safety=safety,
                counts=opdef.counts,
                safety_reason=safety_reason,
            )
        )

    def _arguments(self, node: Node, opdef: OpDef) -> Iterable[Argument]:
        for index, value in enumerate(node.inputs):
            param = opdef.param(index)
            assert param is not None, "the claim lets no surplus input through"
            if value is None:
                yield Argument(ABSENT)
                continue
            slot = self._slot_of(value)
            if param.host is not None:
                known = self.block.host_constants.get(slot)
                if known is not None:
                    yield Argument(ABSENT, param.host, param.host.convert(known))
                else:
                    yield Argument(slot, param.host)
            elif param.prepare is not None:
                yield Argument(self._prepare(node, param.name, param.prepare, slot))
            else:
                yield Argument(slot)

    def _prepare(self, node: Node, name: str, fn: Callable[..., Any], slot: int) -> int:
        """A slot with the prepared value, made once per value and function."""
        if (slot, fn) not in self._prepared:
            made = self._new()
            label = f"{node}, preparing '{name}'"
            self.block.steps.append(Step(label, fn, (Argument(slot),), (made,)))
            self._prepared[slot, fn] = made
        return self._prepared[slot, fn]

    def _prepare_jointly(
        self,
        node: Node,
        positions: tuple[int, ...],
        fn: Callable[..., Any],
        arguments: list[Argument],
    ) -> None:
        """Replace the arguments at `positions` by one prepared value, in the first one's place."""
        given = [arguments[p] for p in positions if p < len(arguments)]
        given += [Argument(ABSENT)] * (len(positions) - len(given))
        made = self._new()
        label = f"{node}, preparing {', '.join(node.param_names[p] for p in positions)}"
        self.block.steps.append(Step(label, _single(partial(fn, node)), tuple(given), (made,)))
        for p in positions:
            if p < len(arguments):
                arguments[p] = Argument(made if p == positions[0] else ABSENT)


def _single(fn: Callable[..., Any]) -> Callable[..., tuple[Any]]:
    """The function with its result as the only output, even when that is a tuple."""
    return lambda *values: (fn(*values),)


def _keywords(node: Node, opdef: OpDef) -> dict[str, Any]:
    known = {k: v for k, v in node.attributes.items() if k in opdef.attributes}
    return {**known, "node": node} if opdef.wants_node else known
