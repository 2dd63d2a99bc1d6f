"""A partition made ready to run: its block, its constants, and which kernel input goes where."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import mlx.core as mx

from . import _native
from .attempts import Backoff
from .blocks import ABSENT, Block, BlockBuilder, Step
from .bounds import Check, watching
from .buckets import Buckets
from .compiled import CompiledRunner
from .errors import InputError, OrtMlxError
from .execute import Frame, Runner
from .guards import Guards, HostRecords
from .hosts import to_device
from .node import Constant, Graph
from .padding import Mixes, Padded, prove
from .placement import may_be_host_input, place, untraceable
from .progression import Progressions
from .records import host_value
from .routes import Caches, Route
from .running import Cancelled, TooLong
from .timings import Timings
from .tracing import NotTraceable, tracing

_KEPT_KEYS: Final = 1024
_KEPT: Final = 8  # the last reasons of each kind that a report shows


@dataclass(frozen=True)
class PlanSettings:
    """What a session decides for its plans."""

    routes: frozenset[Route] = frozenset(Route)  # that are compiled
    fuses: bool = False  # whether MLX's compiler fuses them, which pays on a GPU
    buckets: tuple[Buckets, ...] = ()  # of the dimensions that may be padded
    threads: int = 0  # of the CPU backend; 0 for all
    timings: Timings = field(default_factory=Timings)


class Plan:
    """What the native kernel runs. Made in Compile; constants arrive with the first Run.

    Attributes:
        constant_inputs: kernel inputs that are constants wrapped in place.
        host_inputs: kernel inputs that steer the graph and are wanted as host values.
        copied_inputs: kernel inputs that are constants copied from the model.
        array_inputs: the other kernel inputs that are used.
        paddings: the dimensions that are padded, for Runs that a closure serves.
        unpadded: why dimensions of the option `shape_buckets` are not.
        is_traceable: whether a closure can serve it; `reasons` says why not.
        misses: why the last closures were traced, newest last.
        failures: the last failures of closures, each followed by an eager Run.
    """

    def __init__(
        self,
        graph: Graph,
        kernel_inputs: tuple[str, ...],
        kernel_outputs: tuple[str, ...],
        host_stream: mx.Stream,
        closures: _native.ClosureCache,
        settings: PlanSettings,
    ) -> None:
        self._settings = settings
        self._eager = Runner(host_stream, settings.threads)
        self._stretches = CompiledRunner(host_stream, closures, settings.threads)
        self.threads = settings.threads
        builder = BlockBuilder(graph, kernel_inputs=kernel_inputs)
        self.block = builder.build()
        by_name = {v.name: slot for slot, v in self.block.values.items()}
        self.block.outputs = [by_name[name] for name in kernel_outputs]

        steering = place(
            self.block,
            [s for s in self.block.inputs if may_be_host_input(self.block.values[s])],
        )
        inputs = set(self.block.inputs)
        slots = [builder.slot_named(name) for name in kernel_inputs]
        self.host_inputs = [i for i, slot in enumerate(slots) if slot in steering]
        self.array_inputs = [
            i for i, slot in enumerate(slots) if slot in inputs and slot not in steering
        ]
        self._input_names = [kernel_inputs[i] for i in self.array_inputs + self.host_inputs]
        self.array_names = [kernel_inputs[i] for i in self.array_inputs]
        self._host_slots = [s for i in self.host_inputs if (s := slots[i]) is not None]
        self._array_slots = [s for i in self.array_inputs if (s := slots[i]) is not None]

        self.paddings, self.unpadded = self._prove(graph, kernel_outputs)
        self.reasons = tuple(untraceable(self.block))
        self.is_traceable = bool(settings.routes) and not self.reasons
        self._closures = closures
        self._caches = Caches(self.block, self._array_slots)
        self.route = Route.GENERAL  # of the last trace
        self._uncompiled: set[tuple[int, ...]] = set()  # keys of a route that is not compiled
        self.checks: list[Check] = []  # of the last translation
        self.progressions = Progressions(closures, settings.threads)
        self.failures: deque[str] = deque(maxlen=_KEPT)
        self.misses: deque[str] = deque(maxlen=_KEPT)
        self._last_guards: Guards | None = None
        self._too_long: set[tuple[int, ...]] = set()  # keys whose loops are too long for a closure
        self._takes_stretches = False  # whether the Run that follows a trace goes in stretches
        self._stopped: BaseException | None = None  # what ended a trace, to end its Run with
        self._doubt: Exception | None = None  # of a trace: the user's mistake, or a failure of ours
        self._backoff = Backoff()  # after those
        self._loaded: dict[int, mx.array] = {}  # by the id of a Constant that a block holds
        wrapped: set[int] = set()
        self._load_constants(self.block, wrapped)
        self.constant_inputs = sorted(wrapped)
        self._copied = {
            i: value
            for i, slot in enumerate(slots)
            if slot is not None
            and i not in wrapped
            and (value := self.block.host_constants.get(slot)) is not None
        }
        self.copied_inputs = sorted(self._copied)
        self._kernel_inputs = kernel_inputs

    def _prove(
        self, graph: Graph, kernel_outputs: tuple[str, ...]
    ) -> tuple[list[Padded], list[str]]:
        """The dimensions that are padded, and why others are not."""
        padded, unpadded = [], []
        for wanted in self._settings.buckets:
            try:
                padded.append(prove(graph, wanted, self.array_names, kernel_outputs))
            except Mixes as reason:
                unpadded.append(f"dimension '{wanted.name}': {reason}")
        return padded, unpadded

    def _load_constants(self, block: Block, wrapped: set[int]) -> None:
        """Copy the constants that are not kernel inputs, while ORT's graph is alive."""
        for source in block.constants.values():
            if not isinstance(source, Constant):
                wrapped.add(source)
            elif id(source) not in self._loaded:
                self._loaded[id(source)] = source.load_array()
        for step in block.steps:
            for body in step.bodies.values():
                self._load_constants(body, wrapped)

    def bind_constants(self, arrays: list[mx.array], copied: HostRecords) -> None:
        """Take the wrapped constants, and fold what constants decide.

        Args:
            arrays: the kernel inputs named by `constant_inputs`.
            copied: element type, shape and bytes of those named by `copied_inputs`.

        Raises:
            OrtMlxError: the application replaced a small initializer, which was read from the
            model.
        """
        for index, record in zip(self.copied_inputs, copied, strict=True):
            if host_value(*record).tobytes() != self._copied[index].tobytes():
                raise OrtMlxError(
                    f"initializer '{self._kernel_inputs[index]}' was replaced with "
                    "SessionOptions.add_initializer, and ort_mlx takes one this small from the "
                    "model; change it in the model, or make it an input"
                )
        wrapped = dict(zip(self.constant_inputs, arrays, strict=True))
        with self._settings.timings.timed("constants"):
            self._bind(self.block, wrapped)
        self._loaded.clear()

    def _bind(self, block: Block, wrapped: dict[int, mx.array]) -> None:
        template: Frame = [None] * block.size
        for slot, source in block.constants.items():
            if slot in block.host_constants and slot not in self._read_as_array(block):
                template[slot] = block.host_constants[slot]
            elif isinstance(source, Constant):
                template[slot] = self._loaded[id(source)]
            else:
                template[slot] = wrapped[source]
        self._fold(block, template)
        block.template = template
        for step in block.steps:
            for body in step.bodies.values():
                self._bind(body, wrapped)

    def _read_as_array(self, block: Block) -> set[int]:
        """Constant slots that some step wants as an array."""
        return {
            a.slot for s in block.steps if not s.on_host for a in s.arguments if a.host is None
        } | {outer for s in block.steps for b in s.bodies.values() for outer, _ in b.captured}

    def _fold(self, block: Block, template: Frame) -> None:
        """Run the steps that only depend on constants, and drop the constants nobody else reads."""
        remaining: list[Step] = []
        folded: set[int] = set()
        for step in block.steps:
            if not _is_constant(step, template):
                remaining.append(step)
                continue
            self._eager.run_step(step, template)
            folded.update(slot for slot in step.outputs if slot != ABSENT)
        mx.eval([v for v in template if isinstance(v, (mx.array, tuple))])
        needed = {slot for step in remaining for slot in step.reads()} | set(block.outputs)
        for slot in range(block.size):
            if slot not in needed:
                template[slot] = None
        block.steps = remaining

    def trace(
        self, placeholders: list[mx.array], host_values: HostRecords, key: list[int]
    ) -> list[mx.array] | bool | None:
        """Translate placeholders for a closure.

        Args:
            placeholders: arrays without data for the kernel inputs named by `array_inputs`.
            host_values: element type, shape and bytes of those named by `host_inputs`.
            key: the specialization key that has no closure.

        Returns:
            The outputs; None when only single steps will do; True when the cache got a closure that
            serves this key and those that follow it.
        """
        self._note_miss(Guards.of(placeholders, host_values))
        if not self._backoff.may_try():
            return None
        try:
            with self._settings.timings.timed("trace"):
                made = self._closure_of(placeholders, host_values, key)
            self._backoff.succeeded()
            return made
        except (Cancelled, KeyboardInterrupt) as error:
            self._stopped = error
        except InputError as error:
            self._doubt = error
        except TooLong as error:
            self._takes_stretches = True
            self._remember(self._too_long, key, str(error))
        except NotTraceable as error:
            self.is_traceable = False
            self.reasons = (str(error),)
        return None

    def _closure_of(
        self, placeholders: list[mx.array], host_values: HostRecords, key: list[int]
    ) -> list[mx.array] | bool | None:
        if tuple(key) in self._too_long:
            self._takes_stretches = True
            return None
        if tuple(key) in self._uncompiled:
            return None
        if Route.DECODE in self._settings.routes and self.progressions.serve(
            key, placeholders, host_values, self._sample, self._route_of_progression
        ):
            return True
        outputs = self._traced(placeholders, host_values)
        self.route = self._caches.route(placeholders, outputs)
        if Route.DECODE not in self._settings.routes and self.route is Route.DECODE:
            self.route = Route.GENERAL
        if self.route not in self._settings.routes:
            self._remember(self._uncompiled, key, f"the route {self.route.name.lower()} is off")
            return None
        return outputs

    def _route_of_progression(self) -> Route | None:
        """A progression is decoding unless it is one of prefills."""
        route = Route.PREFILL if self.route is Route.PREFILL else Route.DECODE
        return route if route in self._settings.routes else None

    def _remember(self, keys: set[tuple[int, ...]], key: list[int], reason: str) -> None:
        if len(keys) >= _KEPT_KEYS:
            keys.clear()
        keys.add(tuple(key))
        if reason not in self.reasons:
            self.reasons = (*self.reasons, reason)

    def _sample(
        self, placeholders: list[mx.array], host_values: HostRecords
    ) -> tuple[list[mx.array], list[Check]]:
        outputs = self._traced(placeholders, host_values)
        self.route = self._caches.route(placeholders, outputs)
        return outputs, self.checks

    def _traced(self, placeholders: list[mx.array], host_values: HostRecords) -> list[mx.array]:
        def translate(*arrays: mx.array) -> list[mx.array]:
            return self._outputs(self._eager, list(arrays), host_values)

        with tracing():
            # Fusing pays on a GPU. On the CPU it would call a C++ compiler while running.
            if self._settings.fuses and placeholders:
                return list(mx.compile(translate)(*placeholders))
            return translate(*placeholders)

    def run(self, arrays: list[mx.array], host_values: HostRecords) -> list[mx.array]:
        """Run without a closure for the whole: step by step, with closures for stretches of steps.

        Returns:
            The kernel's outputs, not yet evaluated.
        """
        try:
            if self._stopped is not None:
                raise self._stopped
            return self._run(arrays, host_values)
        except KeyboardInterrupt:
            raise Cancelled("this Run was interrupted from the keyboard") from None
        finally:
            self._stopped = self._doubt = None
            self._takes_stretches = False

    def _run(self, arrays: list[mx.array], host_values: HostRecords) -> list[mx.array]:
        wants_stretches = self._takes_stretches or not self.is_traceable
        in_stretches = (
            wants_stretches and Route.GENERAL in self._settings.routes and self._backoff.may_try()
        )
        if in_stretches:
            try:
                outputs = self._outputs(self._stretches, arrays, host_values)
                mx.eval(outputs)
            except Cancelled:
                raise
            except Exception as error:
                _native.settle()
                self._doubt = error
            else:
                self._backoff.succeeded()
                return outputs
        outputs = self._outputs(self._eager, arrays, host_values)
        if self._doubt is not None:
            mx.eval(outputs)  # a mistake of the user's comes up again here
            if in_stretches:
                self._closures.clear()  # which one failed is not known
            self._backoff.failed()
            self._closures.count_failure()
            self.note_failure(str(self._doubt))
        return outputs

    def _outputs(
        self, runner: Runner, arrays: list[mx.array], host_values: HostRecords
    ) -> list[mx.array]:
        with watching(arrays) as checks:
            made = self._run_block(runner, arrays, host_values)
        self.checks = checks
        return made

    def _run_block(
        self, runner: Runner, arrays: list[mx.array], host_values: HostRecords
    ) -> list[mx.array]:
        frame = self.block.template.copy()
        for slot, array in zip(self._array_slots, arrays, strict=True):
            frame[slot] = array
        for slot, parts in zip(self._host_slots, host_values, strict=True):
            frame[slot] = host_value(*parts)
        return [to_device(v) for v in runner.run_block(self.block, frame)]

    def note_failure(self, text: str) -> None:
        """Record that a closure failed and that the Run went on step by step."""
        self.failures.append(text)

    def _note_miss(self, guards: Guards) -> None:
        self.misses.append(guards.difference(self._last_guards, self._input_names))
        self._last_guards = guards


def _is_constant(step: Step, template: Frame) -> bool:
    if not step.deterministic or step.bodies:
        return False
    return all(a.slot == ABSENT or template[a.slot] is not None for a in step.arguments)
