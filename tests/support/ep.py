"""`ep.check`: one case through a real session; placed, equal, safe and quiet."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import onnx
import onnxruntime as ort

import ort_mlx
from ort_mlx.claim import Rules, reasons_against
from support.case import ROUNDS, Array, Case
from support.disputes import ORT, followed
from support.edges import run_session
from support.nodes import call, node_of
from support.placement import (
    assert_not_placed,
    assert_placed,
    left_for_its_type,
    mlx_session,
    reasons,
)
from support.references import Feed, answers, assert_close, comparable, feed_of, ort_cpu


class Ep:
    """The provider as tests use it."""

    def check(self, c: Case) -> None:
        """Every dtype and version of a case.

        placed: every node of the model is on MLX, by ORT's record. equal: the outputs are those of
        the references. safe: the same session is right again for other shapes and host values, and
        then for the first ones. quiet: the last run traced nothing.
        """
        variants = list(c.variants())
        assert variants, f"{c} runs for no dtype or version"
        failures = []
        for version, dtype in variants:
            try:
                self.check_one(c, version, dtype)
            except Exception as error:
                failures.append((f"{c.op_type} {version}, {dtype}: {error}", error))
        if failures:
            texts = [text for text, _ in failures]
            raise AssertionError("\n\n".join(texts[:4] + texts[4:][-1:])) from failures[0][1]

    def check_one(self, c: Case, version: int, dtype: str) -> None:
        """One dtype at one version."""
        # Outputs that are float32 when a half is computed wide may be bfloat16: ask for float32.
        wanted = [answers(c, version, dtype, turn) for turn in ROUNDS] if c.holds is None else []
        assert c.holds or all(wanted), "no reference runs this"
        if c.op_type == "Constant":  # ORT makes it an initializer before any provider sees it
            self._compare(c, dtype, _called(c, version), wanted[0], 0)
            return
        edges = () if dtype != "bfloat16" else _float_outputs(c, wanted)
        session = mlx_session(c.model(c.arrays(dtype, 0), version, edges))
        if mx.default_device() == mx.gpu and left_for_its_type(session):
            return
        assert_placed(session)
        results = []
        for turn in ROUNDS:
            arrays = c.arrays(dtype, turn)
            got = run_session(session, feed_of(arrays, c))
            results.append(got)
            if c.holds is not None:
                c.holds(arrays, got)
                continue
            self._compare(c, dtype, got, wanted[turn], turn)
        before = traces(session)
        again = run_session(session, feed_of(c.arrays(dtype, 0), c))
        assert traces(session) == before, "a run with known shapes traced again"
        if c.holds is None:
            for first, second in zip(results[0], again, strict=True):
                assert second.tobytes() == first.tobytes(), "a run with known inputs differs"

    def _compare(
        self, c: Case, dtype: str, got: list[Array], wanted: dict[str, list[Array]], turn: int
    ) -> None:
        follow = followed(c, dtype)
        for name, want in wanted.items():
            if follow is not None and follow in wanted and name != follow:
                continue
            theirs = comparable(want, c)
            ours = comparable(got, c)
            assert len(ours) == len(theirs), f"{len(ours)} outputs, {name} has {len(theirs)}"
            for index, (g, w) in enumerate(zip(ours, theirs, strict=True)):
                try:
                    assert_close(g, w, c, dtype, exact_dtype=name == ORT)
                except AssertionError as error:
                    raise AssertionError(
                        f"output {index} in round {turn} is not that of {name}: {error}"
                    ) from None

    def refuse(self, c: Case, sentence: str) -> None:
        """The node is left to another provider for exactly this reason; the model still runs."""
        version, dtype = next(iter(c.variants()))
        arrays = c.arrays(dtype, 0)
        model = c.model(arrays, version)
        expected = _on_cpu(model, feed_of(arrays, c), sentence)
        if expected is None:  # not even ORT's own provider takes it: then the claim alone is asked
            said = reasons_against(node_of(c, version, dtype), Rules())
            assert sentence in said, f"the reasons are {said}"
            return
        session = mlx_session(model)
        assert_not_placed(session, c.op_type)
        # A function that nobody claims is inlined, and what remains of it is reported instead.
        said = reasons(session, c.op_type) or reasons_against(node_of(c, version, dtype), Rules())
        assert sentence in said, f"the reasons are {said}"
        got = run_session(session, feed_of(arrays, c))
        assert [np.shape(y) for y in got] == [y.shape for y in expected]

    def fails(self, c: Case, text: str) -> None:
        """The node is placed, and a Run with these inputs is an error that says `text`."""
        version, dtype = next(iter(c.variants()))
        arrays = c.arrays(dtype, 0)
        session = mlx_session(c.model(arrays, version))
        assert_placed(session)
        try:
            run_session(session, feed_of(arrays, c))
        except (ort.capi.onnxruntime_pybind11_state.InvalidArgument, RuntimeError) as error:
            assert text in str(error), f"the error says: {error}"
            return
        raise AssertionError("the run did not fail")


def traces(session: Any) -> int | None:
    """How often a session has traced, once reports count it."""
    closures = getattr(ort_mlx.report(session), "closures", None)
    return None if closures is None else closures.counts()["traces"]


def _on_cpu(model: onnx.ModelProto, feed: Feed, sentence: str) -> list[Array] | None:
    """ORT's own answer, or None when it has none."""
    if sentence.endswith("is missing"):
        return None  # its kernels trust that the inputs they need are there, and may crash
    try:
        return ort_cpu(model, feed)
    except Exception:
        return None


def _called(c: Case, version: int) -> list[Array]:
    run, _ = call(c, version, "float32")
    return [np.asarray(run())]


def _float_outputs(c: Case, wanted: list[dict[str, list[Array]]]) -> list[str]:
    names = [f"y{i}" for i, want in enumerate(c.outputs) if want]
    if c.holds is not None:
        return names
    first = next(iter(wanted[0].values()))
    return [n for n, y in zip(names, first, strict=True) if y.dtype == np.float32]
