"""Rules that no linter knows: file length, banned words in names, who may import what, pins."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 400
WAIVER = re.compile(r"longer than 400 lines: \w+")
BANNED = frozenset({"manager", "helper", "helpers", "util", "utils", "handler", "engine", "info"})
BANNED_WHOLE = frozenset({"data", "context"})
BANNED_STARTS = ("do_", "process_")
# ONNX's own names of inputs and attributes, which the signature of an op and its tests repeat.
OPS = ("python/ort_mlx/ops/", "tests/ops/", "tests/conformance/")
# ORT's own: a value info, and the severities of its logger.
ORT_NAMES = frozenset({"info", "INFO"})
MAY_IMPORT_ORT = frozenset({"python/ort_mlx/compat.py"})
CXX_NAME = re.compile(r"\b[a-z][a-z0-9_]*\b")


def tracked() -> list[Path]:
    """The files of the project: what git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        check=True, capture_output=True, text=True, cwd=ROOT,
    ).stdout  # fmt: skip
    return [Path(p) for p in sorted(set(listed.splitlines())) if (ROOT / p).is_file()]


def is_banned(name: str) -> bool:
    """Whether a name contains one of the words that say nothing."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().strip("_").split("_")
    bare = name.strip("_")
    return (
        bare in BANNED_WHOLE
        or bare.startswith(BANNED_STARTS)
        or not BANNED.isdisjoint(words)
    )  # fmt: skip


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a Python file defines, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def check_python(path: Path, text: str) -> Iterator[str]:
    """Names and imports."""
    tree = ast.parse(text)
    in_ops = str(path).startswith(OPS)
    for line, name in [(1, path.stem), *defined_names(tree)]:
        schema_name = in_ops and (name == "data" or name.startswith("do_"))
        if is_banned(name) and not schema_name and name != "INFO":
            yield f"{path}:{line}: '{name}' says nothing; see the glossary in CONTRIBUTING.md"
    if not str(path).startswith("python/ort_mlx/"):
        return
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for module in names:
            if module.split(".")[0] == "onnxruntime" and str(path) not in MAY_IMPORT_ORT:
                yield f"{path}:{node.lineno}: get onnxruntime from compat.onnxruntime()"


def check_cxx(path: Path, text: str) -> Iterator[str]:
    """Names in C++; ORT's and MLX's own, spelled in camel case or reached by a dot, are theirs."""
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"\"[^\"]*\"|//.*", "", line)
        code = re.sub(r"(\.|->|::)\s*[a-z][a-z0-9_]*|#include.*", "", code)
        for name in CXX_NAME.findall(code):
            if is_banned(name) and name not in BANNED_WHOLE | ORT_NAMES:
                yield f"{path}:{number}: '{name}' says nothing; see the glossary in CONTRIBUTING.md"


def included(path: Path) -> Iterator[tuple[Path, str]]:
    """Everything that a C++ file includes, with the file that does; its own folder's in turn."""
    for name in re.findall(r"#include [<\"]([^>\"]+)", (ROOT / path).read_text()):
        yield path, name
        if (ROOT / path.parent / name).is_file():
            yield from included(path.parent / name)


def check_loops(path: Path) -> Iterator[str]:
    """What is built for several instruction sets must have no inline functions of others."""
    for where, name in included(path):
        if name not in ("cstdint", "immintrin.h") and not (ROOT / path.parent / name).is_file():
            yield f"{where}: {path} includes it, so it must not include <{name}>"


def check_pins() -> Iterator[str]:
    """MLX and nanobind are pinned in several places, which have to agree."""
    text = (ROOT / "pyproject.toml").read_text() + (ROOT / "Makefile").read_text()
    tomllib.loads((ROOT / "pyproject.toml").read_text())
    for package in ("mlx", "nanobind"):
        found = set(re.findall(rf"\b{package}(?:\[\w+\]|\$\([^\s=]*\))?==([\d.]+)", text))
        if len(found) != 1:
            yield f"pyproject.toml, Makefile: {package} is pinned to {sorted(found)}"


def main() -> int:
    """Print what breaks a rule; returns the exit status."""
    problems = list(check_pins())
    for path in tracked():
        if path.suffix not in (".py", ".cpp", ".h"):
            continue
        text = (ROOT / path).read_text()
        lines = text.count("\n")
        if lines > LIMIT and not WAIVER.search("\n".join(text.splitlines()[:30])):
            problems.append(f"{path}: {lines} lines; split it, or say why in a waiver line")
        problems += check_python(path, text) if path.suffix == ".py" else check_cxx(path, text)
        if path.name.endswith("_loops.cpp"):
            problems += check_loops(path)
    print("\n".join(problems) or "file rules: all kept")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
