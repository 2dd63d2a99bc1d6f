"""The provider is registered once; hypothesis profiles; `--regold` rewrites the goldens."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")

import onnxruntime as ort

import ort_mlx
from support.ep import Ep

GOLDEN = Path(__file__).parent / "golden"

settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=300)
settings.register_profile("deep", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regold", action="store_true", help="rewrite the files in tests/golden")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Adds up what the node tests of onnx came to, over all workers."""
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                total.update(dict(report.user_properties).get("onnx node tests", {}))
    if total:
        shown = ", ".join(f"{count} {what}" for what, count in total.most_common())
        terminalreporter.write_line(f"onnx node tests: {shown}")


@pytest.fixture(scope="session")
def ep() -> Ep:
    """The provider, registered with ONNX Runtime."""
    ort.set_default_logger_severity(4)
    ort_mlx.register()
    return Ep()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with a file in tests/golden; `--regold` writes the file."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--regold"):
            path.write_text(text)
        assert path.exists(), f"tests/golden/{name} is missing; write it with --regold"
        assert text == path.read_text(), f"tests/golden/{name} differs; review with --regold"

    return compare
