"""Which steps run on the host: those a host parameter needs and whose inputs are known there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .blocks import ABSENT, Block, Step
from .dtypes import FLOATS, NARROW
from .node import Value
from .safety import EAGER

# A kernel input may steer the graph from the host when it is this small; a larger one is data.
_MAX_FLOATS = 16


def place(block: Block, host_inputs: Iterable[int] = ()) -> set[int]:
    """Decide for every step, nested ones included, and find what is released after it.

    Args:
        block: the block of a partition.
        host_inputs: the input slots that may be given as host values.

    Returns:
        The input slots that are needed on the host.
    """
    available = set(host_inputs) | _read_directly(block)
    _find_available(block, available)
    demanded: set[int] = set()
    _demand(block, set(), demanded)
    _release(block)
    return demanded & set(block.inputs)


def _read_directly(block: Block) -> set[int]:
    """Input slots that a host parameter takes as they are, whatever their size."""
    inputs = set(block.inputs)
    found = set()
    for step in block.steps:
        found |= {a.slot for a in step.arguments if a.host is not None and a.slot in inputs}
        for body in step.bodies.values():
            inner = _read_captured(body)
            found |= {outside for outside, here in body.captured if here in inner} & inputs
    return found


def _read_captured(block: Block) -> set[int]:
    found = set()
    for step in block.steps:
        found |= {a.slot for a in step.arguments if a.host is not None}
        for body in step.bodies.values():
            inner = _read_captured(body)
            found |= {outside for outside, here in body.captured if here in inner}
    return found


def untraceable(block: Block) -> Iterator[str]:
    """Why no closure can serve the block: each step that needs data, with its reason."""
    for step in block.steps:
        if step.safety is EAGER:
            yield f"[{step.label}] {step.safety_reason or 'its result depends on data'}"
        elif step.reads_device:
            yield f"[{step.label}] it needs a value on the host that the device computes"
        for body in step.bodies.values():
            yield from untraceable(body)


def may_be_host_input(value: Value) -> bool:
    """Whether a kernel input looks like a shape, an axis, a bound or a switch, not like data."""
    if value.rank is None or value.rank > 1 or value.dtype in NARROW:
        return False
    if value.dtype not in FLOATS:
        return True
    if value.rank == 0:
        return True
    size = value.shape[0] if value.shape else None
    return isinstance(size, int) and size <= _MAX_FLOATS


def _find_available(block: Block, available: set[int], counted: set[int] | None = None) -> None:
    """Mark `on_host` optimistically: every step whose inputs are all known on the host.

    `counted` are the slots with numbers of iterations, and what is computed from these.
    """
    counted = set() if counted is None else counted
    available |= block.host_constants.keys()
    for step in block.steps:
        for body in step.bodies.values():
            number = set(body.inputs[:1]) if step.counts else set()
            inner = {here for outside, here in body.captured if outside in available}
            numbers = {here for outside, here in body.captured if outside in counted}
            _find_available(body, inner | number, numbers | number)
        inputs = [a.slot for a in step.arguments if a.slot != ABSENT]
        step.on_host = step.returns_host or (
            step.deterministic
            and not step.bodies
            and bool(step.arguments)
            and all(slot in available for slot in inputs)
        )
        step.reads_device = any(
            a.host is not None and a.slot not in available and a.slot != ABSENT
            for a in step.arguments
        )
        step.follows_count = any(a.host is not None and a.slot in counted for a in step.arguments)
        if step.on_host and counted.intersection(inputs):
            counted.update(step.outputs)
        if step.on_host or (step.bodies and _bodies_give_host_values(step)):
            available.update(step.outputs)


def _bodies_give_host_values(step: Step) -> bool:
    for body in step.bodies.values():
        made = set(body.host_constants)
        for inner in body.steps:
            if inner.on_host:
                made.update(inner.outputs)
        if not all(slot in made for slot in body.outputs):
            return False
    return True


def _demand(block: Block, wanted: set[int], demanded: set[int]) -> None:
    """Walk backwards from host parameters; keep `on_host` only where somebody needs the result."""
    demanded |= wanted
    for step in reversed(block.steps):
        needed = any(slot in demanded for slot in step.outputs)
        for body in step.bodies.values():
            inner: set[int] = set()
            _demand(body, set(body.outputs) if needed else set(), inner)
            demanded.update(outside for outside, here in body.captured if here in inner)
        for argument in step.arguments:
            if argument.slot == ABSENT:
                continue
            if argument.host is not None or (needed and step.on_host and not step.returns_host):
                demanded.add(argument.slot)
        if not step.returns_host:
            step.on_host = step.on_host and needed


def _release(block: Block) -> None:
    kept = set(block.outputs)
    for step in reversed(block.steps):
        for body in step.bodies.values():
            _release(body)
        last = {slot for slot in step.reads() if slot not in kept}
        kept |= last
        step.releases = tuple(last)
