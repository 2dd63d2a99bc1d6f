"""Every option of the provider, in one table: name, type, default, meaning.

Options travel as strings in the session's configuration, under `ep.mlxexecutionprovider.<name>`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final

from . import buckets
from .buckets import LARGEST_INT
from .errors import OptionError

DEVICES: Final = ("auto", "gpu", "cpu")
SWITCH: Final = ("auto", "on", "off")
ROUTES: Final = ("general", "prefill", "decode")  # in the order of the native layer

# The factory gives this to sessions that select us by device, as an ORT policy does too; asking by
# name, or with any option of our own, is a choice somebody made.
SELECTED_BY: Final = "selected_by"


# Environment variable to the option it sets where the session does not; for comparing routes.
ENVIRONMENT: Final = {"ORT_MLX_ROUTES": "routes"}


def _option(
    default: Any, meaning: str, choices: tuple[str, ...] = (), most: int = LARGEST_INT
) -> Any:
    return field(default=default, metadata={"meaning": meaning, "choices": choices, "most": most})


@dataclass(frozen=True)
class Options:
    """The options of one session."""

    device: str = _option("auto", "where to run: the GPU if there is one, or one of them", DEVICES)
    strict: bool = _option(False, "refuse a model of which a node would stay on another provider")
    keep_islands: bool = _option(
        False,
        "also take groups of nodes that only do shape arithmetic, which cost more than they give",
    )
    routes: tuple[str, ...] = _option(
        ROUTES,
        "which Runs are compiled: prefill and decode are those that append to a key/value cache, "
        "more rows than one or one; the others are general. Without decode each step of it is "
        "compiled by itself, as general; other Runs of a route left out go step by step",
        ROUTES,
    )
    fuse: str = _option(
        "auto", "let MLX's compiler fuse closures: auto does on Metal, where that is quick", SWITCH
    )
    threads: int = _option(
        0, "threads of the CPU backend; 0 for the session's intra_op_num_threads, or all"
    )
    max_closures: int = _option(128, "closures kept for a session; the least recent go first")
    max_closure_bytes: int = _option(
        1 << 28, "memory that its closures may hold on to, in bytes", most=(1 << 63) - 1
    )
    shape_buckets: tuple[str, ...] = _option(
        (),
        "sizes that a dimension of the model is padded to, by its name, so that one closure serves "
        "several: `{'batch': [1, 2, 4], 'tokens': 64}` for some sizes and for multiples of one, as "
        "text `batch=1/2/4,tokens=64/...`. Only where the graph shows that nothing mixes positions "
        "along it; the report says what does",
    )
    layer_cuts: int = _option(
        -1,
        "cut the largest partition at so many places, between layers where few values cross; -1 "
        "for what the model's metadata says under `ort_mlx.layer_cuts`, or none",
    )
    exclude_ops: tuple[str, ...] = _option((), "op types to leave to other providers")


def parse(given: Mapping[str, Any]) -> Options:
    """Validate options as a user gives them, Python values and strings alike.

    Raises:
        OptionError: an unknown name or a value that does not fit; the text names the nearest one.
    """
    known = {f.name: f for f in fields(Options)}
    values: dict[str, Any] = {}
    for name, value in {**_from_environment(), **given}.items():
        if name == SELECTED_BY:
            continue
        if name not in known:
            raise OptionError(f"unknown option '{name}'{nearest(name, known)}; see docs/options.md")
        values[name] = _convert(name, value, known[name])
    buckets.parse_all(values.get("shape_buckets", ()))
    return Options(**values)


def _from_environment() -> dict[str, str]:
    return {name: os.environ[var] for var, name in ENVIRONMENT.items() if var in os.environ}


def as_strings(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as ORT carries them; validates first."""
    parse(options)
    return {name: _as_string(value) for name, value in options.items()}


def _as_string(value: Any) -> str:
    if isinstance(value, Mapping):
        return buckets.written(value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(str(v) for v in value)
    return str(value)


def _convert(name: str, value: Any, option: Field[Any]) -> Any:
    default, choices = option.default, option.metadata["choices"]
    if isinstance(default, bool):
        return _boolean(name, value)
    if isinstance(default, tuple):
        items = _items(name, value)
        return tuple(_choice(name, str(i).strip(), choices) for i in items if str(i).strip())
    if isinstance(default, int):
        return _count(name, value, min(default, 1), option.metadata["most"])
    return _choice(name, str(value), choices)


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if choices and text not in choices:
        raise OptionError(
            f"option '{name}' takes {', '.join(choices)}, not '{text}'{nearest(text, choices)}"
        )
    return text


def _items(name: str, value: Any) -> Iterable[Any]:
    if name == "shape_buckets" and isinstance(value, Mapping):
        value = buckets.written(value)
    if isinstance(value, str):
        return value.split(",")
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise OptionError(f"option '{name}' is a list, not '{value}'")
    return value


def _count(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        limit = f"at most {most}" if number > most else f"at least {least}"
        raise OptionError(f"option '{name}' is a whole number of {limit}, not '{value}'")
    return number


def _boolean(name: str, value: Any) -> bool:
    words = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    text = str(value).lower()
    if text not in words:
        raise OptionError(f"option '{name}' is true or false, not '{value}'")
    return words[text]


def nearest(text: str, candidates: Any) -> str:
    """` (did you mean ...?)`, or nothing when no candidate is close."""
    close = difflib.get_close_matches(text, list(candidates), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""
