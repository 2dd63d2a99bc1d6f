"""Models that a program of their own builds, once: the tools that do stay in memory otherwise."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).parent.parent


def missing(needed: Iterable[str]) -> str | None:
    """Why nothing can be built here, or None."""
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    return f"the group `genai` is not installed: no {', '.join(absent)}" if absent else None


def built(recipe: Path, cache: Path, family: str, form: str) -> Path:
    """The folder of a model; runs the recipe with FAMILY, FORM and the folder the first time."""
    version = hashlib.sha256(recipe.read_bytes()).hexdigest()[:8]
    folder = cache / f"{recipe.stem}-{version}" / f"{family}-{form}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", f"support.{recipe.stem}", family, form, str(folder)]
        path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
        made = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr[-4000:]
    return folder


def settle(made: Path, folder: Path) -> None:
    """Give what was built its name; an interrupted build leaves nothing under it."""
    try:
        made.rename(folder)
    except OSError:  # another process built the same meanwhile
        if not folder.is_dir():
            raise
