"""The option `shape_buckets`: for a dimension of the model, the sizes that it is padded to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import OptionError

LARGEST_INT: Final = (1 << 31) - 1  # what MLX's dimensions are held in


@dataclass(frozen=True)
class Buckets:
    """The sizes of one symbolic dimension: some in order, or every multiple of one."""

    name: str
    sizes: tuple[int, ...] = ()
    multiple: int = 0


def written(given: Any) -> str:
    """The option as text, from `{"batch": [1, 2, 4], "tokens": 64}`: `batch=1/2/4,tokens=64/...`.

    Text is passed on as it is.
    """
    if not isinstance(given, Mapping):
        return ",".join(given) if isinstance(given, (list, tuple)) else str(given)
    items = []
    for name, sizes in given.items():
        several = isinstance(sizes, (list, tuple))
        items.append(f"{name}={'/'.join(map(str, sizes)) if several else f'{sizes}/...'}")
    return ",".join(items)


def parse(text: str) -> Buckets:
    """The buckets of one dimension, written `name=1/2/4` or `name=64/...`.

    Raises:
        OptionError: the text is neither.
    """
    name, _, rest = text.rpartition("=")
    first, *others = rest.split("/")
    sizes = [first, *(o for o in others if o != "...")]
    is_multiple = others == ["..."]
    whole = all(s.strip().isdecimal() and 0 < int(s) <= LARGEST_INT for s in sizes)
    if not name.strip() or not whole or ("..." in others and not is_multiple):
        raise OptionError(
            "option 'shape_buckets' is a dimension's name and its sizes, as in "
            f"{{'batch': [1, 2, 4], 'tokens': 64}} or 'batch=1/2/4,tokens=64/...', not '{text}'"
        )
    if is_multiple:
        return Buckets(name.strip(), multiple=int(first))
    return Buckets(name.strip(), tuple(sorted({int(s) for s in sizes})))


def parse_all(texts: Iterable[str]) -> tuple[Buckets, ...]:
    """The buckets of every dimension.

    Raises:
        OptionError: a text is none, or two are of the same dimension.
    """
    made = tuple(parse(text) for text in texts)
    names = [b.name for b in made]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"option 'shape_buckets' has the dimension '{name}' twice")
    return made
