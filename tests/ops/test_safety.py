"""docs/safety.md is what is measured here, and no operator declares more than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ort_mlx import registry

if TYPE_CHECKING:
    from safety import Measurement


@pytest.fixture(scope="module")
def made() -> list[Measurement]:
    from safety import measurements

    return measurements()


def test_every_operator_is_on_the_page(made: list[Measurement]) -> None:
    assert {id(m.op) for m in made} == {id(o) for o in registry.all_ops()}


def test_no_declaration_is_false(made: list[Measurement]) -> None:
    assert [f"{m.op}: {m.measured}, {m.note}" for m in made if m.is_false] == []


def test_the_page_is_current(made: list[Measurement]) -> None:
    from safety import PAGE, page

    assert PAGE.read_text() == page(made), "docs/safety.md is stale: run scripts/safety.py"
