"""What one ORT session asks of Python: which nodes to claim, and a plan for each partition.

The native layer makes one EpSession per session and calls it from `GetCapability` and `Compile`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any, Final

import mlx.core as mx

from . import _native, buckets, compat, settings
from .claim import Rules, bind, reasons_against
from .cuts import asked, cut_largest
from .dtypes import NARROW
from .errors import DeviceError
from .node import Graph, Node
from .partition import Partition, partition
from .plan import Plan, PlanSettings
from .records import graph_of
from .registry import ML, MS, all_ops
from .reports import LeftNode, Report
from .routes import Route

# ORT's severities, which the native layer forwards messages with.
INFO: Final = 1
WARNING: Final = 2

# Sets which EpSession a Python InferenceSession belongs to: see `of_token`.
TOKEN_OPTION: Final = "ort_mlx.report_token"

_BY_TOKEN: weakref.WeakValueDictionary[str, EpSession] = weakref.WeakValueDictionary()


_LIVING: weakref.WeakSet[EpSession] = weakref.WeakSet()
_numbers = itertools.count()


class EpSession:
    """The state of one session of the provider.

    Args:
        options: the strings of the session's configuration that are addressed to us.
        gpu: whether MLX has a GPU here.

    Raises:
        OptionError: an option that does not exist or does not fit.
        DeviceError: `device="gpu"` on a machine without one.
    """

    def __init__(self, options: dict[str, str], gpu: bool) -> None:
        self.options = settings.parse(options)
        self.number = next(_numbers)
        _LIVING.add(self)
        self.device = self._choose_device(gpu)
        self.closures = _native.ClosureCache(
            self.options.max_closures, self.options.max_closure_bytes
        )
        self._is_fused = self._fuses()
        self.cancel_flag = _native.CancelFlag()
        self.report = Report(device=self.device, closures=self.closures)
        self._messages: list[tuple[int, str]] = []
        self._refusal: str | None = None
        self._compiled_nodes = 0
        # An ORT policy picks any provider that offers a device. Without a GPU that is no gain, so
        # take nothing unless somebody asked for us.
        self._was_asked = gpu or settings.SELECTED_BY not in options or len(options) > 1
        self._rules = Rules(
            self.device,
            frozenset(self.options.exclude_ops),
            passes_captured=compat.ort_version() >= (1, 27),
        )

    def _choose_device(self, gpu: bool) -> str:
        if self.options.device == "gpu" and not gpu:
            raise DeviceError(
                "device='gpu' was asked for, but MLX has no GPU here; install the backend for it "
                "(python -m ort_mlx doctor says what is missing) or use device='cpu'"
            )
        return ("gpu" if gpu else "cpu") if self.options.device == "auto" else self.options.device

    def _fuses(self) -> bool:
        # Elsewhere kernels are compiled while running, some 20 s for a small model on CUDA and with
        # the system's C++ compiler on the CPU; on CUDA MLX 0.32 can crash in them.
        has_metal = self.device == "gpu" and bool(mx.metal.is_available())
        if self.options.fuse == "on" and not has_metal:
            raise DeviceError("fuse='on' works on Metal only; leave it at 'auto'")
        return has_metal and self.options.fuse != "off"

    def keeps_bodies_of(self, record: tuple[Any, ...]) -> bool:
        """Whether the bodies of the only node of a graph record are to be left alone."""
        if not self._was_asked:
            return False
        node, opdef = bind(graph_of(record).nodes[0])
        # ORT may inline an operator that is not ours, such as SequenceMap, body and all.
        return opdef is None or not reasons_against(node, self._rules)

    def partition(self, record: tuple[Any, ...], nested: bool) -> list[Partition]:
        """The partitions of a graph; `nested` when it is the body of a node we do not claim."""
        timed = self.report.timings.timed
        with timed("snapshot"):
            graph = graph_of(record)
        with timed("claim"):
            if not self._was_asked:
                reasons: list[tuple[str, ...]] = [(_BY_POLICY,)] * len(graph.nodes)
            else:
                reasons = [reasons_against(node, self._rules) for node in graph.nodes]
        with timed("partition"):
            partitions = [
                Partition(
                    p.nodes, _drops_initializers([graph.nodes[i] for i in p.nodes], self.device)
                )
                for p in self._partition(graph, reasons, cuts=0 if nested else self._cuts(graph))
            ]
        if nested:
            return partitions
        self._check_excluded(graph)
        self._account(graph, reasons, partitions)
        if self.options.strict and self.report.left:
            self._refusal = self.report.refusal()
            # Only a failure in Compile reaches the user, so make sure that there is one.
            return partitions or [Partition((self._refused_node(graph),))]
        self._refusal = None
        return partitions

    def _partition(
        self, graph: Graph, reasons: list[tuple[str, ...]], cuts: int = 0
    ) -> list[Partition]:
        keep = self.options.keep_islands or self.options.strict
        groups = partition(graph, [not r for r in reasons], keep_islands=keep)
        return [Partition(nodes) for nodes in cut_largest(graph, groups, cuts)]

    def _check_excluded(self, graph: Graph) -> None:
        known = {o.name for o in all_ops()} | {node.op_type for node in graph.nodes}
        for name in sorted(set(self.options.exclude_ops) - known):
            close = settings.nearest(name, known)
            self._note(WARNING, f"ort_mlx: exclude_ops names '{name}', no known operator{close}")

    def _cuts(self, graph: Graph) -> int:
        try:
            return asked(self.options.layer_cuts, graph)
        except ValueError as error:  # of the model's own: it runs as well without
            self._note(WARNING, f"ort_mlx: {error}; it is not cut")
            return 0

    def _account(
        self, graph: Graph, reasons: list[tuple[str, ...]], partitions: list[Partition]
    ) -> None:
        """Rewrite the report. ORT may ask about a graph again, after it has inlined functions.

        Bodies come before the graph around them, and what we took there has been compiled by now.
        """
        taken = {i for p in partitions for i in p.nodes}
        self.report.taken = self._compiled_nodes + len(taken)
        self.report.partitions = len(self.report.plans) + len(partitions)
        self.report.left = list(self._left(graph, reasons, taken))
        declined = any(reasons)
        text = self.report.line() if self._was_asked else f"ort_mlx: {_NOT_ASKED}"
        self._note(WARNING if declined else INFO, text)

    def _left(
        self, graph: Graph, reasons: list[tuple[str, ...]], taken: set[int], nested: bool = False
    ) -> Iterator[LeftNode]:
        for i, node in enumerate(graph.nodes):
            if i in taken or node.domain == _native.EP_NAME:  # the latter is a partition in a body
                continue
            for body in node.bodies.values():
                inner = [reasons_against(n, self._rules) for n in body.nodes]
                ours = {i for p in self._partition(body, inner) for i in p.nodes}
                yield from self._left(body, inner, ours, nested=True)
            why = reasons[i] or ("only shape arithmetic, cheaper on the CPU provider",)
            yield LeftNode(node.name, node.op_type, node.domain, why, nested)

    def _refused_node(self, graph: Graph) -> int:
        """A node to fail at. A model's own function is not one: ORT inlines it and asks again."""
        known = (i for i, node in enumerate(graph.nodes) if node.domain in ("", MS, ML))
        return next(known, 0)

    def compile(
        self,
        record: tuple[Any, ...],
        kernel_inputs: tuple[str, ...],
        kernel_outputs: tuple[str, ...],
        host_stream: mx.Stream,
    ) -> Plan:
        """The plan of one partition, given as the graph that ORT fused."""
        if self._refusal is not None:
            raise NotImplementedError(self._refusal)
        timings = self.report.timings
        with timings.timed("snapshot"):
            graph = graph_of(record)
        plan_settings = PlanSettings(
            routes=frozenset(Route[name.upper()] for name in self.options.routes),
            fuses=self._is_fused,
            buckets=buckets.parse_all(self.options.shape_buckets),
            threads=self.options.threads,
            timings=timings,
        )
        with timings.timed("plan"):
            plan = Plan(
                graph,
                kernel_inputs,
                kernel_outputs,
                host_stream,
                self.closures,
                plan_settings,
            )
        self.report.plans.append(plan)
        self._compiled_nodes += len(graph.nodes)
        return plan

    def set_dynamic_option(self, key: str, value: str) -> None:
        """React to `InferenceSession.set_ep_dynamic_options`; options of others are ignored."""
        if key == TOKEN_OPTION:
            _BY_TOKEN[value] = self

    def take_messages(self) -> list[tuple[int, str]]:
        """Severity and text of what there is to log, once."""
        messages, self._messages = self._messages, []
        return messages

    def _note(self, severity: int, text: str) -> None:
        self._messages.append((severity, text))


_BY_POLICY: Final = "chosen by a policy, on a machine without a GPU"
_NOT_ASKED: Final = (
    "no GPU here and no option says to run on the CPU, so every node is left to the other "
    "providers; ask with ort_mlx.enable(session_options) or the provider option device='cpu'"
)


def all_reports() -> list[Report]:
    """The reports of the provider's living sessions, oldest first.

    For programs that make their sessions out of reach, as onnxruntime-genai does.
    """
    return [session.report for session in sorted(_LIVING, key=lambda s: s.number)]


def of_token(token: str) -> EpSession | None:
    """The EpSession that was sent this token."""
    return _BY_TOKEN.get(token)


def _drops_initializers(nodes: list[Node], device: str) -> bool:
    """Whether our copies of the constants replace ORT's.

    On the CPU backend constants are wrapped where ORT keeps them, unless most of their bytes are
    weights that we re-lay out and so hold a copy of anyway.
    """
    if device != "cpu":
        return True
    kept = prepared = 0
    for node in nodes:
        node, opdef = bind(node)
        for index, value in enumerate(node.inputs):
            if value is None or value.constant is None or opdef is None:
                continue
            param = opdef.param(index)
            if value.dtype in NARROW or (param is not None and param.is_prepared):
                prepared += value.constant.nbytes
            else:
                kept += value.constant.nbytes
    return prepared > kept
