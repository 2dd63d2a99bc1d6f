"""A process that runs trials for `pool`, so that a crash costs one: worker.py FD [optimize]."""

from __future__ import annotations

import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> None:
    """Say that it is ready; answer each trial twice: before it comes to our provider, and after.

    An answer is an outcome and whether it is the last one of its trial.
    """
    warnings.simplefilter("ignore")
    import onnxruntime as ort

    from conformance.running import run_trial

    ort.set_default_logger_severity(4)
    connection, optimize = Connection(int(sys.argv[1])), "optimize" in sys.argv[2:]
    connection.send("ready")
    while True:
        try:
            trial = connection.recv()
        except EOFError:
            return
        outcome = run_trial(trial, lambda o: connection.send((o, False)), optimize)
        connection.send((outcome, True))


if __name__ == "__main__":
    main()
