"""One operator as text: for `python -m ort_mlx ops NAME` and the generated docs/ops.md."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any, Final

from . import dtypes, registry
from .registry import OpDef, Param

_SET_NAMES: Final = {
    dtypes.EVERY: "any or narrow",
    dtypes.ANY: "any",
    dtypes.NUMERIC: "numeric",
    dtypes.FLOATS: "floats",
    dtypes.SINGLES: "floats but float64",
    dtypes.HALVES: "halves",
    dtypes.INTS: "ints",
    dtypes.SIGNED_INTS: "signed ints",
    dtypes.UNSIGNED_INTS: "unsigned ints",
}


def types_text(types: frozenset[str]) -> str:
    """A set of dtypes by its name, or as a list."""
    return _SET_NAMES.get(types) or ", ".join(sorted(types))


def inputs_of(made: OpDef) -> str:
    """The inputs with their types; `?` marks an optional one, `*` a variadic one."""
    return "; ".join(_input_text(p) for p in made.params) or "none"


def _input_text(param: Param) -> str:
    mark = "*" if param.variadic else ""
    end = "" if param.required or param.variadic else "?"
    host = ", on the host" if param.host else ""
    return f"{mark}{param.name}{end} ({types_text(param.types)}{host})"


def attributes_of(made: OpDef) -> str:
    """The attributes with their defaults, then those taken at one value only."""
    read = [
        name if default is Parameter.empty else f"{name}={default!r}"
        for name, default in made.attributes.items()
    ]
    fixed = [f"{name} only as {value!r}" for name, value in made.fixed.items()]
    return ", ".join(read + fixed) or "none"


def declined_forms(made: OpDef) -> list[str]:
    """The sentences that the op's claim can yield, read from its source."""
    return list(dict.fromkeys(_sentences(made.claim))) if made.claim else []


def _sentences(claim: Callable[..., Any], depth: int = 0) -> Iterator[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(claim)))
    except (OSError, TypeError, SyntaxError):
        return
    names = {**getattr(claim, "__globals__", {}), **inspect.getclosurevars(claim).nonlocals}
    for node in ast.walk(tree):
        if isinstance(node, ast.Yield) and node.value is not None:
            yield _literal(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and depth < 3:
            called = names.get(node.func.id)
            if inspect.isgeneratorfunction(called):
                yield from _sentences(called, depth + 1)


def _literal(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Tuple):  # a lower safety, and when it holds
        safety, reason = node.elts
        return f"{ast.unparse(safety)} when {_literal(reason)}"
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(v.value) if isinstance(v, ast.Constant) else "{...}" for v in node.values
        )
    return f"({ast.unparse(node)})"


def safety_text(made: OpDef) -> str:
    """The op's safety, and the forms of a node that have less."""
    if made.less_safe is None:
        return made.safety.name
    return "; ".join([made.safety.name, *dict.fromkeys(_sentences(made.less_safe))])


def op_text(made: OpDef) -> str:
    """Everything the registry knows of an op."""
    lines = [f"{made}  versions {', '.join(str(v) for v in made.since)}  {safety_text(made)}"]
    lines += [f"  input      {_input_text(param)}" for param in made.params]
    lines.append(f"  attributes {attributes_of(made)}")
    lines += [f"  prepared   {name}, once per session" for name in made.prepare]
    lines += [f"  declined   when {sentence}" for sentence in declined_forms(made)]
    lines.append(f"  in         {made.fn.__module__}.{made.fn.__qualname__}")
    return "\n".join(lines)


def nearest(name: str) -> str:
    """A hint at operators with a similar name."""
    known = {o.name for o in registry.all_ops()}
    close = difflib.get_close_matches(name, known, n=3)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def signature_to_paste(name: str) -> str:
    """The start of a translation, from the newest ONNX schema of that name."""
    try:
        import onnx.defs as defs
    except ImportError:
        return "install the onnx package to see the operator's schema: pip install onnx"
    schemas = [s for s in defs.get_all_schemas_with_history() if s.name == name]
    if not schemas:
        return "the onnx package has no operator of that name"
    schema = max(schemas, key=lambda s: s.since_version)
    since = tuple(sorted({s.since_version for s in schemas if s.domain == schema.domain}))
    parts = [_parameter(i) for i in schema.inputs]
    if schema.attributes and not any(p.startswith("*") for p in parts):
        parts.append("*")
    parts += [_attribute(a) for a in schema.attributes.values()]
    domain = f', domain="{schema.domain}"' if schema.domain else ""
    inputs = "\n".join(f"#   {i.name}: {', '.join(sorted(i.types))}" for i in schema.inputs)
    body = "".join(f"    {part},\n" for part in parts)
    return (
        f"# {schema.domain or 'ai.onnx'}::{name}, versions {since}; read what each one changed:\n"
        f"# https://onnx.ai/onnx/operators/\n{inputs}\n"
        f'@op("{name}", since={since}{domain}, types={{}})\n'
        f"def {_snake(name)}(\n{body}) -> {_result(schema)}:\n    raise NotImplementedError"
    )


def _parameter(formal: Any) -> str:
    name = _snake(formal.name)
    kind = str(formal.option).rsplit(".", 1)[-1]
    if kind == "Variadic":
        return f"*{name}: mx.array"
    return f"{name}: mx.array | None = None" if kind == "Optional" else f"{name}: mx.array"


def _attribute(attribute: Any) -> str:
    kind = str(attribute.type).rsplit(".", 1)[-1]
    python = {
        "INT": "int",
        "FLOAT": "float",
        "STRING": "str",
        "INTS": "tuple[int, ...]",
        "FLOATS": "tuple[float, ...]",
        "STRINGS": "tuple[str, ...]",
        "GRAPH": "Body",
    }.get(kind, "HostValue")
    if attribute.required:
        return f"{attribute.name}: {python}"
    default = attribute.default_value
    if default.type == 0:
        return f"{attribute.name}: {python} | None = None"
    import onnx.helper

    value = onnx.helper.get_attribute_value(default)
    value = value.decode() if isinstance(value, bytes) else value
    value = round(value, 7) if isinstance(value, float) else value
    return f"{attribute.name}: {python} = {tuple(value) if isinstance(value, list) else value!r}"


def _result(schema: Any) -> str:
    if len(schema.outputs) == 1:
        return "mx.array"
    return f"tuple[{', '.join(['mx.array'] * len(schema.outputs))}]"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
