"""`python -m ort_mlx doctor | ops [NAME] | explain MODEL | report MODEL`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; its packages are an extra, so say so when they are missing."""
    try:
        from .cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(
            f"python -m ort_mlx needs the package {error.name}; run: pip install 'ort-mlx[cli]'",
            file=sys.stderr,
        )
        return 2
    app(prog_name="python -m ort_mlx")
    return 0


if __name__ == "__main__":
    sys.exit(main())
