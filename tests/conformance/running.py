"""One trial, on ORT CPU and then with our provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort

import ort_mlx
from conformance.outcomes import (
    FAILED,
    PASSED,
    REFUSED,
    WRONG,
    Outcome,
    difference,
    one_line,
)
from conformance.retarget import retarget
from conformance.trials import Trial, Values
from ort_mlx import registry
from support.edges import run_session

_COMMON: Final = frozenset(range(1, 14)) - {8} | {16}  # dtypes of TensorProto that MLX has
_RANDOM: Final = frozenset(d.name for d in registry.all_ops() if d.deterministic is False)
_SOMETIMES: Final = frozenset(d.name for d in registry.all_ops() if callable(d.deterministic))


class InexpressibleError(Exception):
    """The trial cannot be put to ORT."""


def run_trial(trial: Trial, started: Callable[[Outcome], None], optimize: bool = False) -> Outcome:
    """Run a trial; `started` is told what is known before our provider, which may crash."""
    outcome = Outcome(trial.suite, trial.name, trial.op_type, trial.domain, trial.opset)
    model = onnx.ModelProto.FromString(trial.model)
    try:
        if trial.opset:
            model = _moved(model, trial.opset)
        outcome = replace(outcome, common=all(t in _COMMON for t in _dtypes(model.graph)))
        feeds = [_feed(model.graph, inputs) for inputs, _ in trial.rounds]
    except InexpressibleError as error:
        return replace(outcome, detail=str(error))
    options = _options(optimize)
    cpu, answers, why = _attempt(model, options, feeds)
    wanted = [want for _, want in trial.rounds]
    if trial.opset or wanted[0] is None:  # then the answer is ORT's
        wanted = list(answers) if cpu == PASSED else _asked(trial, model, wanted)
        if wanted is None:
            return replace(outcome, cpu=cpu, detail=why)
    elif cpu == PASSED:
        cpu = _judge(trial, answers, wanted)[0]
    if trial.defined is not None:
        pairs = zip(trial.rounds, wanted, strict=True)
        wanted = [trial.defined(model, i, w) for (i, _), w in pairs]
    outcome = replace(outcome, cpu=cpu)
    started(outcome)
    return _with_mlx(trial, outcome, model, optimize, feeds, wanted)


def _moved(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    moved = retarget(model, opset)
    if moved is None:
        raise InexpressibleError(f"does not fit opset {opset}")
    return moved


def _asked(trial: Trial, model: onnx.ModelProto, wanted: list[Any]) -> list[Values] | None:
    if trial.oracle is None or trial.opset:
        return None
    return [trial.oracle(model, inputs) for inputs, _ in trial.rounds]


def _with_mlx(
    trial: Trial,
    outcome: Outcome,
    model: onnx.ModelProto,
    optimize: bool,
    feeds: list[dict[str, Any]],
    wanted: list[Values],
) -> Outcome:
    options = ort_mlx.enable(_options(optimize), keep_islands=True)
    sessions: list[Any] = []
    repeats = 2 if _has(trial, _SOMETIMES) else 1
    status, answers, detail = _attempt(model, options, feeds * repeats, sessions.append)
    answers, again = answers[: len(feeds)], answers[len(feeds) :]
    draws = any(difference(b, a, 0, 0) for a, b in zip(answers, again, strict=False))
    if sessions:
        places = [
            part.ep_name == ort_mlx.get_ep_name()
            for part in sessions[0].get_provider_graph_assignment_info()
            for _ in part.get_nodes()
        ]
        left = ort_mlx.report(sessions[0]).left
        outcome = replace(
            outcome,
            on_mlx=sum(places),
            elsewhere=len(places) - sum(places),
            reasons=tuple((node.op_type, why) for node in left for why in node.reasons),
        )
    if status == PASSED:
        status, detail = _judge(trial, answers, wanted, draws)
        if status == WRONG and trial.opset:  # ORT may be the less exact one
            status = _judge(trial, answers, [want for _, want in trial.rounds])[0]
    return replace(outcome, mlx=status, detail="" if status == PASSED else detail)


def _options(optimize: bool) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def _attempt(
    model: onnx.ModelProto,
    options: Any,
    feeds: list[dict[str, Any]],
    made: Callable[[Any], None] = lambda session: None,
) -> tuple[str, list[Values], str]:
    """Status, outputs of every Run, and what went wrong."""
    names = None if options.has_providers() else ["CPUExecutionProvider"]
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, names, enable_fallback=0)
        made(session)
    except Exception as error:  # ORT raises a type for each of its codes
        return REFUSED, [], one_line(error)
    try:
        return PASSED, [_run(session, feed) for feed in feeds], ""
    except Exception as error:
        return FAILED, [], one_line(error)


def _judge(
    trial: Trial, answers: list[Values], wanted: list[Values], draws: bool = False
) -> tuple[str, str]:
    # Everybody draws other numbers: only their shape and dtype can be compared.
    draws = draws or _has(trial, _RANDOM)
    for got, want in zip(answers, wanted, strict=True):
        if draws:
            got, want = ([np.zeros_like(y) for y in ys] for ys in (got, want))
        elif trial.defined is not None:
            got = [_only_defined(g, w) for g, w in zip(got, want, strict=True)]
        if text := difference(got, want, trial.rtol, trial.atol):
            return WRONG, text
    return PASSED, ""


def _only_defined(got: Any, want: Any) -> Any:
    return np.where(np.isnan(want), want, got) if got.shape == want.shape else got


def _has(trial: Trial, op_types: frozenset[str]) -> bool:
    graph = onnx.ModelProto.FromString(trial.model).graph
    return any(node.op_type in op_types for node in graph.node)


def _feed(graph: onnx.GraphProto, inputs: Values) -> dict[str, Any]:
    constants = {i.name for i in graph.initializer}
    given = [i for i in graph.input if i.name not in constants or len(inputs) == len(graph.input)]
    return {i.name: _value(x, i.type) for i, x in zip(given, inputs, strict=False)}


def _value(x: Any, kind: onnx.TypeProto) -> Any:
    if x is None:
        raise InexpressibleError("an absent optional value")
    return np.asarray(x) if kind.WhichOneof("value") == "tensor_type" else x


def _run(session: Any, feed: dict[str, Any]) -> Values:
    if all(isinstance(v, np.ndarray) for v in feed.values()):
        return run_session(session, feed)
    return list(session.run(None, feed))


def _dtypes(graph: onnx.GraphProto) -> Iterator[int]:
    """The element type of every tensor in the graph and its bodies; 0 for what is no tensor."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        is_tensor = value.type.WhichOneof("value") in ("tensor_type", None)
        yield (value.type.tensor_type.elem_type or 1) if is_tensor else 0
    yield from (i.data_type for i in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i:
                yield attribute.i
            if attribute.HasField("t"):
                yield attribute.t.data_type
            if attribute.HasField("g"):
                yield from _dtypes(attribute.g)
