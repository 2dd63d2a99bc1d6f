"""The op registry: one decorator above each op's body says everything the rest needs to know.

The signature of an op function is its ONNX schema. Positional parameters are the inputs in order,
keyword-only parameters are the attributes with their defaults, `*name` is a variadic input, and a
parameter annotated with a `Host...` type is wanted as a Python value. Two keyword-only names are
not attributes: `node` receives the Node. An op returns one value or a tuple of all its outputs;
outputs that the model does not use cost nothing, since MLX is lazy.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from .dtypes import ANY
from .hosts import HostKind, HostValue
from .safety import PER_SHAPE, Safety

if TYPE_CHECKING:
    from .node import Node
    from .padding import Padding

MS: Final = "com.microsoft"
ML: Final = "ai.onnx.ml"

Claim: TypeAlias = "Callable[[Node], Iterator[str]]"
LessSafe: TypeAlias = "Callable[[Node], Iterator[tuple[Safety, str]]]"
Prepare: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])

_INJECTED: Final = frozenset({"node"})


@dataclass(frozen=True)
class Param:
    """One ONNX input as the op function takes it."""

    name: str
    required: bool
    variadic: bool
    host: HostKind | None
    types: frozenset[str]
    prepare: Prepare | None  # of this parameter alone
    is_prepared: bool  # alone or with others


@dataclass(frozen=True, eq=False)
class OpDef:
    """One translated operator; `since` lists the schema versions it was written for."""

    domain: str
    name: str
    since: tuple[int, ...]
    fn: Callable[..., Any]
    safety: Safety
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    claim: Claim | None = None
    prepare: Mapping[str | tuple[str, ...], Prepare] = field(default_factory=dict)
    deterministic: bool | Callable[[Node], bool] = True
    less_safe: LessSafe | None = None
    padding: Padding | None = None
    counts: bool = False

    def __str__(self) -> str:
        return f"{self.domain or 'ai.onnx'}::{self.name}"

    @cached_property
    def params(self) -> tuple[Param, ...]:
        """The inputs, in ONNX order."""
        hints = typing.get_type_hints(self.fn, include_extras=True)
        made = []
        for p in inspect.signature(self.fn).parameters.values():
            if p.kind is inspect.Parameter.KEYWORD_ONLY:
                continue
            made.append(
                Param(
                    name=p.name,
                    required=p.default is inspect.Parameter.empty
                    and p.kind is not inspect.Parameter.VAR_POSITIONAL
                    and type(None) not in typing.get_args(hints.get(p.name)),
                    variadic=p.kind is inspect.Parameter.VAR_POSITIONAL,
                    host=_host_kind(hints.get(p.name)),
                    types=self.types.get(p.name, ANY),
                    prepare=self.prepare.get(p.name),
                    is_prepared=any(p.name in _names(key) for key in self.prepare),
                )
            )
        return tuple(made)

    @cached_property
    def joint_prepares(self) -> tuple[tuple[tuple[int, ...], Prepare], ...]:
        """The functions that prepare several parameters together, with their positions."""
        position = {p.name: i for i, p in enumerate(self.params)}
        return tuple(
            (tuple(position[name] for name in names), fn)
            for names, fn in self.prepare.items()
            if isinstance(names, tuple)
        )

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """Attribute name to default; `inspect.Parameter.empty` marks a required one."""
        return {
            p.name: p.default
            for p in inspect.signature(self.fn).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name not in _INJECTED
        }

    def safety_of(self, node: Node) -> tuple[Safety, str]:
        """What the op allows for a node, and why that is less than `safety`, if it is."""
        found = () if self.less_safe is None else self.less_safe(node)
        return min(found, default=(self.safety, ""))

    def is_deterministic(self, node: Node) -> bool:
        """Whether a node has the same result each time."""
        fixed = self.deterministic
        return fixed if isinstance(fixed, bool) else fixed(node)

    @cached_property
    def returns_host(self) -> bool:
        """Whether the result is known on the host without the device, as a shape is."""
        return bool(typing.get_type_hints(self.fn).get("return") == HostValue)

    @cached_property
    def wants_node(self) -> bool:
        """Whether the function takes the Node too."""
        return "node" in inspect.signature(self.fn).parameters

    def param(self, index: int) -> Param | None:
        """The parameter that takes input `index`, or None when there are too many inputs."""
        if index < len(self.params):
            return self.params[index]
        last = self.params[-1] if self.params else None
        return last if last is not None and last.variadic else None


def _names(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def _host_kind(hint: Any) -> HostKind | None:
    if typing.get_origin(hint) is typing.Annotated:
        for extra in hint.__metadata__:
            if isinstance(extra, HostKind):
                return extra
    for arg in typing.get_args(hint):  # Optional[HostInts]
        if (kind := _host_kind(arg)) is not None:
            return kind
    return None


_OPS: Final[dict[tuple[str, str, int], OpDef]] = {}


def op(
    name: str,
    *,
    since: tuple[int, ...],
    domain: str = "",
    types: Mapping[str, frozenset[str]] | None = None,
    safety: Safety = PER_SHAPE,
    fixed: Mapping[str, Any] | None = None,
    claim: Claim | None = None,
    prepare: Mapping[str | tuple[str, ...], Prepare] | None = None,
    deterministic: bool | Callable[[Node], bool] = True,
    less_safe: LessSafe | None = None,
    padding: Padding | None = None,
    counts: bool = False,
) -> Callable[[F], F]:
    """Register the decorated function as the translation of an ONNX operator.

    Args:
        name: the op type, spelled as in a model.
        since: the schema versions it is written for, matched exactly.
        domain: "" for ai.onnx, `MS`, or `ML`.
        types: parameter name to the dtypes it takes; a parameter left out takes `ANY`.
        safety: what the op allows once compiled; leave it out until a test says otherwise.
        fixed: attributes the function does not read, with the one value that is fine.
        claim: yields a sentence for each reason to leave a node to another provider.
        prepare: parameter name to a function applied once when the input is a constant (a weight's
            layout), and on every Run when it is not. The op gets the prepared value. A tuple of
            names is prepared together, by a function of the node and the values (None where the
            model omits one): the op gets the result as the first of them and None for the others.
        deterministic: False for random ops, which are never folded, or whether a node is none.
        less_safe: yields a lower safety with a sentence for each form of the node that needs it.
        padding: where positions along a padded axis go; see `padding.py`. Leave it out for an op
            that mixes them, along any axis.
        counts: whether the first input of its bodies is the number of the iteration, which it
            gives them as a host value.
    """

    def register(fn: F) -> F:
        made = OpDef(
            domain=domain,
            name=name,
            since=since,
            fn=fn,
            safety=safety,
            types=types or {},
            fixed=fixed or {},
            claim=claim,
            prepare=prepare or {},
            deterministic=deterministic,
            less_safe=less_safe,
            padding=padding,
            counts=counts,
        )
        for version in since:
            key = (domain, name, version)
            if key in _OPS:
                raise ValueError(f"{made} {version} is registered twice")
            _OPS[key] = made
        return fn

    return register


@functools.cache
def _load() -> dict[tuple[str, str, int], OpDef]:
    from . import ops

    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")
    return _OPS


def find(domain: str, name: str, version: int) -> OpDef | None:
    """The translation of exactly this schema version, if there is one."""
    return _load().get(("" if domain == "ai.onnx" else domain, name, version))


def versions(domain: str, name: str) -> tuple[int, ...]:
    """The schema versions of an operator that are translated."""
    domain = "" if domain == "ai.onnx" else domain
    return tuple(sorted(v for d, n, v in _load() if (d, n) == (domain, name)))


def all_ops() -> tuple[OpDef, ...]:
    """Every translation of this package once, ordered by domain, name and first version.

    Operators that users registered are not among them.
    """
    unique = {id(made): made for made in _load().values() if _is_ours(made)}
    return tuple(sorted(unique.values(), key=lambda o: (o.domain, o.name, o.since)))


def _is_ours(made: OpDef) -> bool:
    return made.fn.__module__.startswith(f"{__package__}.ops.")
