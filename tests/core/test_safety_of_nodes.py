"""What a node allows once compiled, where its attributes and constants decide."""

from __future__ import annotations

import numpy as np
import pytest

import ort_mlx
from core.graphs import FLOAT, MLX, mlx_session, model, node, placed, tensor

IMAGES = np.random.default_rng(0).standard_normal((1, 2, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("ratio", [0, 2])
def test_boxes_are_read_only_where_they_decide(ratio) -> None:
    attributes = {"output_height": 2, "output_width": 2, "sampling_ratio": ratio}
    made = model(
        [node("RoiAlign", ["x", "boxes", "batch"], ["y"], name="n", **attributes)],
        [tensor("x", FLOAT, [1, 2, 8, 8]), tensor("boxes", FLOAT, ["n", 4])],
        [tensor("y")],
        {"batch": np.zeros(2, np.int64)},
    )
    session = mlx_session(made)
    assert set(placed(session)) == {MLX}
    boxes = np.array([[0, 0, 3, 3], [1, 2, 7, 7]], np.float32)
    for scale in (1, 0.5):
        session.run(None, {"x": IMAGES, "boxes": boxes * np.float32(scale)})
    report = ort_mlx.report(session)
    counts = report.closures.counts()
    if ratio:
        assert (counts["traces"], counts["hits"], counts["eager_runs"]) == (1, 1, 0)
        assert not report.eager_reasons
    else:
        assert counts["traces"] == 0
        said = "[RoiAlign 'n'] sampling_ratio is 0: the boxes say how many samples there are"
        assert report.eager_reasons == [said]


def test_a_constant_condition_is_part_of_the_closure() -> None:
    made = model(
        [node("Compress", ["x", "kept"], ["y"], axis=0)],
        [tensor("x", FLOAT, [3, "n"])],
        [tensor("y")],
        {"kept": np.array([True, False, True])},
    )
    session = mlx_session(made)
    assert set(placed(session)) == {MLX}
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x[[0, 2]])
    assert ort_mlx.report(session).closures.counts()["traces"] == 1
