"""The commands of `python -m ort_mlx`. Only this module needs the extra `ort-mlx[cli]`."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import compat, describe, doctor, registration, registry
from .errors import OrtMlxError
from .reports import Report

app = typer.Typer(
    help="Look into ort-mlx: the installation, the operators, and what happens to a model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ModelPath = Annotated[Path, typer.Argument(help="an ONNX model file", metavar="MODEL")]
Device = Annotated[str, typer.Option(help="auto, gpu or cpu")]


def _console() -> Console:
    # A pipe has no width, and a log or a file has room for long lines.
    return Console(width=None if os.isatty(1) else 160, highlight=False)


@app.command("doctor")
def run_doctor() -> None:
    """Check the installation; exit code 1 and advice when something is off."""
    console = _console()
    table = Table("", "what", "found", box=None)
    checks = doctor.examine()
    for check in checks:
        mark = "[green]ok[/]" if check.passed else "[red]off[/]"
        table.add_row(mark, check.subject, escape(check.found))
    console.print(table)
    failed = [c for c in checks if not c.passed]
    for check in failed:
        console.print(f"[red]{check.subject}[/]: {escape(check.advice)}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)
    console.print("everything is in order")


@app.command("ops")
def run_ops(
    name: Annotated[str, typer.Argument(help="an op type, such as Conv")] = "",
) -> None:
    """List the operators that are translated, or show one of them in full."""
    console = _console()
    if not name:
        table = Table("domain", "operator", "versions", "safety", box=None)
        for made in registry.all_ops():
            versions = ", ".join(str(v) for v in made.since)
            table.add_row(made.domain or "ai.onnx", made.name, versions, describe.safety_text(made))
        console.print(table)
        return
    found = [o for o in registry.all_ops() if o.name.lower() == name.lower()]
    for made in found:
        console.print(escape(describe.op_text(made)), soft_wrap=True)
    if not found:
        console.print(f"{name} is not translated{escape(describe.nearest(name))}.", soft_wrap=True)
        console.print(escape(describe.signature_to_paste(name)), soft_wrap=True)
        raise typer.Exit(1)


@app.command("explain")
def run_explain(model: ModelPath, device: Device = "auto") -> None:
    """Say where each node of a model runs, and why those that stay behind do."""
    console = _console()
    session, report = _open(model, device)
    console.print(escape(report.line()), soft_wrap=True)
    for index, subgraph in enumerate(session.get_provider_graph_assignment_info()):
        if subgraph.ep_name != registration.get_ep_name():
            continue
        counted = Counter(node.op_type for node in subgraph.get_nodes())
        listed = ", ".join(f"{op} x{k}" if k > 1 else op for op, k in counted.most_common())
        console.print(f"partition {index}: {listed}", soft_wrap=True)
    if not report.left:
        return
    table = Table("operator", "node", "why it stays", box=None)
    for node in report.left:
        domain = f"{node.domain}::" if node.domain else ""
        where = f"{node.name} (in a body)" if node.nested else node.name
        table.add_row(domain + node.op_type, escape(where), escape("\n".join(node.reasons)))
    console.print(table)


@app.command("report")
def run_report(
    model: ModelPath,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="as data instead of text")] = False,
) -> None:
    """Print what `ort_mlx.report(session)` says about a model, for a bug report or a script."""
    _, report = _open(model, device)
    if not as_json:
        print(report)
        return
    shown: dict[str, Any] = {
        "device": report.device,
        "nodes": report.nodes,
        "taken": report.taken,
        "partitions": report.partitions,
        "left": [dataclasses.asdict(node) for node in report.left],
    }
    print(json.dumps(shown, indent=2))


def _open(model: Path, device: str) -> tuple[Any, Report]:
    if not model.is_file():
        raise typer.BadParameter(f"there is no file {model}")
    try:
        ort = compat.onnxruntime()
        options = registration.enable(ort.SessionOptions(), device=device)
        options.log_severity_level = 3
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        session = ort.InferenceSession(os.fspath(model), options)
        return session, registration.report(session)
    except OrtMlxError as error:
        typer.echo(str(error), err=True)
    except Exception as error:  # ORT's exceptions have no common base; its text is the answer
        typer.echo(f"ONNX Runtime cannot open {model}: {error}", err=True)
    raise typer.Exit(1)
