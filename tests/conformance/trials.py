"""Trials: a model with inputs and the outputs that it should have.

From the suites of the onnx package: the node tests and their expanded functions, the simple models,
the operators and models converted from PyTorch, and the light models. `contrib` adds com.microsoft.
"""

from __future__ import annotations

import glob
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import ml_dtypes  # noqa: F401  # so that arrays of its dtypes can be unpickled
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from conformance import contrib

Values = list[Any]
Oracle = Callable[[onnx.ModelProto, Values], Values]

NODE: Final = "node"
EXPANDED: Final = "node, expanded"
CONTRIB: Final = "contrib"
PYTORCH: Final = ("pytorch-converted", "pytorch-operator")
SUITES: Final = (NODE, EXPANDED, "simple", *PYTORCH, "light", CONTRIB)
OPSETS: Final = (9, 11, 13, 17, 21)

# Sums of hundreds of values of up to a thousand: ORT's own tests allow them this much as well.
_WIDE: Final = ("test_dft", "test_stft")


@dataclass(frozen=True)
class Trial:
    """One test of one model.

    Attributes:
        rounds: inputs and expected outputs of each Run; outputs of None are those of ORT CPU.
        opset: what to move the model down to first; 0 leaves it alone.
        oracle: the outputs where ORT CPU has no kernel.
        defined: marks with NaN what the operator leaves undefined in expected outputs.
    """

    suite: str
    name: str
    op_type: str
    domain: str
    model: bytes
    rounds: tuple[tuple[Values, Values | None], ...]
    rtol: float = 1e-3
    atol: float = 1e-5
    opset: int = 0
    oracle: Oracle | None = None
    defined: Callable[[onnx.ModelProto, Values, Values], Values] | None = None

    def __str__(self) -> str:
        return f"{self.name} at opset {self.opset}" if self.opset else self.name


def collect(suite: str) -> list[Trial]:
    """The trials of a suite, by name."""
    if suite in (NODE, EXPANDED):
        return [t for t in node_trials() if t.suite == suite]
    if suite == "light":
        return list(_light())
    if suite == CONTRIB:
        return list(_contrib())
    return list(_from_folders(suite))


def moved_down(opset: int) -> list[Trial]:
    """The node tests, expanded ones too, that are written for a newer opset than this."""
    moved = (replace(t, opset=opset) for t in node_trials())
    return [t for t in moved if _onnx_opset(t.model) > opset]


@cache
def node_trials() -> tuple[Trial, ...]:
    """All node tests."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tests = sorted(load_model_tests(kind="node"), key=lambda t: str(t.name))
    ops = {t.name: _operator(t.model) for t in tests}
    made = []
    for test in tests:
        suite = EXPANDED if "_expanded" in test.name else NODE
        domain, op_type = ops.get(test.name.partition("_expanded")[0], ops[test.name])
        rounds = tuple((_values(i), _values(o)) for i, o in test.data_sets)
        serialized = test.model.SerializeToString()
        atol = 1e-4 if test.name.startswith(_WIDE) else max(test.atol, 1e-5)
        made.append(
            Trial(suite, test.name, op_type, domain, serialized, rounds, max(test.rtol, 1e-3), atol)
        )
    return tuple(made)


def _operator(model: onnx.ModelProto) -> tuple[str, str]:
    nodes = model.graph.node
    names = sorted({n.op_type for n in nodes})
    return (nodes[0].domain, names[0]) if len(nodes) == 1 else ("", "+".join(names)[:40])


def _values(values: Any) -> Values:
    return [numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in values]


def _onnx_opset(model: bytes) -> int:
    imports = onnx.ModelProto.FromString(model).opset_import
    return max((i.version for i in imports if i.domain in ("", "ai.onnx")), default=0)


def _light() -> Iterator[Trial]:
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(str(path))
        constants = {i.name for i in model.graph.initializer}
        (given,) = (i for i in model.graph.input if i.name not in constants)
        shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
        count = int(np.prod(shape))
        x = (np.arange(count).reshape(shape) / count).astype(np.float32)
        want = _read(path.with_name(f"{path.stem}_output_0.pb"), model.graph.output[0].type)
        rounds = (([x], [want]),)
        yield Trial("light", f"test_{path.stem}", "", "", model.SerializeToString(), rounds)


def _from_folders(suite: str) -> Iterator[Trial]:
    for test in sorted(load_model_tests(kind=suite), key=lambda t: str(t.name)):
        folder = Path(test.model_dir)
        model = onnx.load(str(folder / "model.onnx"))
        rounds = tuple(
            (_files(f"{d}/input", model.graph.input), _files(f"{d}/output", model.graph.output))
            for d in sorted(glob.glob(f"{folder}/test_data_set_*"))
        )
        yield Trial(suite, test.name, "", "", model.SerializeToString(), rounds)


def _files(start: str, infos: Any) -> Values:
    count = len(glob.glob(f"{start}_*.pb"))
    return [_read(Path(f"{start}_{i}.pb"), infos[i].type) for i in range(count)]


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    if kind.WhichOneof("value") == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    if kind.WhichOneof("value") == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def _contrib() -> Iterator[Trial]:
    for case in contrib.cases():
        node = case.model.graph.node[0]
        yield Trial(
            CONTRIB,
            case.name,
            node.op_type,
            node.domain,
            case.model.SerializeToString(),
            ((case.inputs, None),),
            case.rtol,
            case.atol,
            oracle=case.oracle,
            defined=case.defined,
        )


COUNTS: Final[Mapping[str, int]] = {  # of onnx 1.23: a suite must not shrink unseen
    NODE: 1404,
    EXPANDED: 480,
    "simple": 23,
    "pytorch-converted": 82,
    "pytorch-operator": 35,
    "light": 9,
    CONTRIB: 254,
}
