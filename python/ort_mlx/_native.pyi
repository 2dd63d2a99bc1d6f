"""
The execution provider itself: ONNX Runtime loads this file as its plugin library.
"""

from collections.abc import Sequence
from typing import overload

from typing import Any

import mlx.core


EP_NAME: str = 'MLXExecutionProvider'

COMPILED_MLX_VERSION: str = '0.32.4'

NANOBIND_VERSION: str = '3.1.0'

MINIMUM_ORT_MINOR: int = 24

class Initializer:
    """A constant tensor of the model; readable while ORT's graph lives."""

    @property
    def dtype(self) -> int:
        """ONNX Runtime's element type code."""

    @property
    def shape(self) -> tuple[Any, ...]: ...

    @property
    def nbytes(self) -> int:
        """In ONNX Runtime's memory; 0 when no array can hold this type."""

    def bytes(self) -> bytes:
        """A copy of the elements in the dtype that holds them, row-major."""

    def to_mlx(self) -> mlx.core.array:
        """A copy as an mx.array."""

class Closure:
    """A captured MLX graph, replayed on other inputs."""

    @property
    def node_count(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def nodes(self) -> list[Any]:
        """
        Of a sample: the name of each primitive, and dtype and shape of what goes in and out.
        """

    def replay(self, inputs: Sequence[mlx.core.array], step: int = 0) -> list[mlx.core.array]:
        """The graph on these arrays, not yet evaluated."""

def capture(placeholders: Sequence[mlx.core.array], outputs: Sequence[mlx.core.array], threads: int = 0) -> Closure:
    """Capture the graph from placeholders to outputs as a Closure."""

def repeat(placeholders: Sequence[mlx.core.array], outputs: Sequence[mlx.core.array], is_counted: bool, is_conditional: bool, trips: int, carried: Sequence[mlx.core.array], sources: Sequence[mlx.core.array], threads: int, is_traced: bool) -> list[mlx.core.array]:
    """
    Run the traced body of a loop up to `trips` times: its last carried values, then the rows it stacks. Part of the trace, or computed at once.
    """

def sample(placeholders: Sequence[mlx.core.array], outputs: Sequence[mlx.core.array], threads: int = 0) -> Closure:
    """Capture the graph as it was traced, for `unite`."""

def unite(samples: Sequence[Closure], steps: Sequence[int], checks: Sequence[Sequence[tuple[int, int]]]) -> Closure:
    """
    One closure for the progression that the samples were traced at; RuntimeError says why not.
    """

def row_major(value: mlx.core.array) -> mlx.core.array:
    """
    The elements in row-major order, as an output has them; an empty array is left alone.
    """

@overload
def placeholder(like: mlx.core.array) -> mlx.core.array:
    """An array of the same shape and dtype without data, to trace with."""

@overload
def placeholder(shape: Sequence[int], like: mlx.core.array) -> mlx.core.array:
    """The same with another shape."""

def settle() -> None:
    """
    Wait for the default stream after an evaluation that failed, and forget the failure.
    """

class ClosureCache:
    """The closures of one session, least recent out."""

    def __init__(self, max_closures: int, max_bytes: int) -> None: ...

    def find(self, key: bytes) -> Closure: ...

    def insert(self, key: bytes, closure: Closure) -> None: ...

    def insert_progression(self, base: Sequence[int], change: Sequence[int], last: int, closure: Closure, route: int) -> None:
        """Serve the keys base, base + change, ... up to `last` steps on."""

    def clear(self) -> None: ...

    def count_failure(self) -> None: ...

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def counts(self) -> dict[str, Any]:
        """What happened so far, by name."""

class CancelFlag:
    """Stops the Runs of one session."""

    def __init__(self) -> None: ...

    def request(self) -> None:
        """Stop the Runs that are in progress."""

def check_stopped() -> None:
    """Raise Cancelled when the Run of this thread was asked to stop."""

def add_custom_op(domain: str, name: str, since_version: int, required_inputs: int, optional_inputs: int, has_variadic_input: bool, outputs: int, infer: object) -> None:
    """Give ORT the schema of an operator that the provider runs."""

def mlx_version() -> str:
    """Of the loaded libmlx."""

def load_blas(path: str) -> bool:
    """
    Use this OpenBLAS for products on the CPU; false when it has not what is needed.
    """

def blas_description() -> str:
    """The OpenBLAS in use, or an empty string."""

def instruction_sets() -> list[str]:
    """
    Of the loops on the CPU, those that this processor has; the last is used.
    """

def use_instruction_set(name: str) -> None:
    """Use another one, in the whole process; for tests."""

def gpu_is_available() -> bool:
    """Whether MLX has a GPU backend with a device."""

def pass_array(a: mlx.core.array) -> mlx.core.array:
    """
    Return the array: shows that mlx.core and this module share their types.
    """

def counters() -> dict[str, Any]:
    """Process-wide counts, for tests and reports."""

def throw_in_callbacks(enabled: bool) -> None:
    """
    Make every callback that ORT calls throw, to test that nothing crosses the C boundary.
    """
