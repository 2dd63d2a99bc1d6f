"""Build and install ort-mlx into this environment, editable, showing the compiler's steps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHOWN = re.compile(r"^\s*(\[\d+/\d+\]|Successfully|CMake (Error|Warning)|.*\b(error|warning):)")


def main() -> int:
    """Run pip; its whole output is shown only when it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-v"]
    command += ["--no-build-isolation", "--no-deps", "-e", str(ROOT), *sys.argv[1:]]
    command += ["-C", "cmake.define.ORT_MLX_WERROR=ON"]
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            if SHOWN.match(line):
                print(line.strip(), flush=True)
    if running.returncode:
        print("".join(lines), file=sys.stderr)
        return running.returncode
    return subprocess.run([sys.executable, "-c", "import ort_mlx"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
