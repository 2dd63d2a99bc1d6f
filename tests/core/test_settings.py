"""Options: typed, validated, the same as Python values and as ORT's strings."""

from __future__ import annotations

from typing import Any

import pytest

from ort_mlx.errors import OptionError, OrtMlxError
from ort_mlx.settings import Options, as_strings, parse


def test_defaults() -> None:
    made = parse({})
    assert made == Options()
    assert (made.device, made.strict, made.keep_islands, made.exclude_ops) == (
        "auto",
        False,
        False,
        (),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"devise": "cpu"}, r"unknown option 'devise' \(did you mean 'device'\?\)"),
        ({"Strict": True}, r"unknown option 'Strict' \(did you mean 'strict'\?\)"),
        ({"zzz": 1}, r"unknown option 'zzz'; see docs"),
        ({"device": "gpuu"}, r"'device'.*auto, gpu, cpu, not 'gpuu' \(did you mean 'gpu'\?\)"),
        ({"device": None}, r"'device'.*not 'None'"),
        ({"strict": "maybe"}, r"'strict' is true or false, not 'maybe'"),
        ({"strict": 2}, r"'strict' is true or false, not '2'"),
        ({"keep_islands": ""}, r"'keep_islands' is true or false, not ''"),
        ({"layer_cuts": -2}, r"'layer_cuts' is a whole number of at least -1, not '-2'"),
        ({"layer_cuts": "many"}, r"'layer_cuts' is a whole number of at least -1, not 'many'"),
        ({"threads": 1 << 31}, r"'threads' is a whole number of at most 2147483647, not"),
        ({"max_closures": 1 << 64}, r"'max_closures' is a whole number of at most 2147483647"),
        ({"max_closure_bytes": 1 << 63}, r"'max_closure_bytes' is a whole number of at most 9"),
        ({"routes": 4}, r"'routes' is a list, not '4'"),
        ({"shape_buckets": None}, r"'shape_buckets' is a list, not 'None'"),
        ({"exclude_ops": {"Add": 1}}, r"'exclude_ops' is a list, not"),
        ({"shape_buckets": "n=4,m=2,n=8"}, r"'shape_buckets' has the dimension 'n' twice"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        parse(given)
    assert isinstance(caught.value, (ValueError, OrtMlxError))


@pytest.mark.parametrize("true", [True, 1, "1", "true", "True", "on"])
@pytest.mark.parametrize("false", [False, 0, "0", "false", "FALSE", "off"])
def test_booleans(true: Any, false: Any) -> None:
    assert parse({"strict": true}).strict is True
    assert parse({"strict": false}).strict is False


@pytest.mark.parametrize(
    "given", [["Relu", "Conv"], ("Relu", "Conv"), "Relu,Conv", " Relu , Conv,"]
)
def test_lists(given: Any) -> None:
    assert parse({"exclude_ops": given}).exclude_ops == ("Relu", "Conv")


def test_strings_carry_every_value() -> None:
    given = {"device": "cpu", "strict": True, "keep_islands": False, "exclude_ops": ("A", "B")}
    strings = as_strings(given)
    assert all(isinstance(v, str) for v in strings.values())
    assert parse(strings) == parse(given)


def test_strings_are_validated_too() -> None:
    with pytest.raises(OptionError, match="did you mean 'strict'"):
        as_strings({"strikt": True})
