"""Trials in processes of their own: a crash or a hang is an outcome, and the next trial goes on."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from conformance.outcomes import CRASHED, HUNG, Outcome
from conformance.trials import Trial

WORKER = Path(__file__).with_name("worker.py")
_START_SECONDS = 120  # it imports ONNX Runtime, MLX and onnx, on a machine that may be busy


def run_trials(
    trials: Iterable[Trial],
    jobs: int = 2,
    seconds: float = 60,
    optimize: bool = False,
) -> list[Outcome]:
    """Run trials in `jobs` processes; a trial that takes longer than `seconds` has hung.

    Returns:
        An outcome for each trial, in no particular order.
    """
    todo = iter(trials)
    lock = threading.Lock()
    outcomes: list[Outcome] = []

    def work() -> None:
        worker = _Worker(optimize)
        try:
            while (trial := _next(todo, lock)) is not None:
                outcomes.append(worker.run(trial, seconds))
        finally:
            worker.stop()

    with ThreadPoolExecutor(jobs) as threads:
        try:
            for running in [threads.submit(work) for _ in range(jobs)]:
                running.result()
        except BaseException:  # a time limit too: leaving waits for the threads
            _drain(todo, lock)
            raise
    return outcomes


def _next(todo: Iterator[Trial], lock: threading.Lock) -> Trial | None:
    with lock:
        return next(todo, None)


def _drain(todo: Iterator[Trial], lock: threading.Lock) -> None:
    with lock:
        deque(todo, maxlen=0)


class _Worker:
    """One process, started again after it dies."""

    def __init__(self, optimize: bool) -> None:
        self._flags = ["optimize"] if optimize else []
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def run(self, trial: Trial, seconds: float) -> Outcome:
        connection = self._connection or self._start()
        before = Outcome(trial.suite, trial.name, trial.op_type, trial.domain, trial.opset)
        with_mlx = False
        try:
            connection.send(trial)
            while connection.poll(seconds):
                outcome, is_last = connection.recv()
                if is_last:
                    return outcome
                before, with_mlx = outcome, True
            status, detail = HUNG, f"no answer within {seconds:g} s"
        except (EOFError, OSError):
            status, detail = CRASHED, ""
        code = self.stop(kill=status == HUNG)
        detail = detail or f"exit status {code}"
        if not with_mlx:  # then it was not us
            return replace(before, detail=f"{detail}, before our provider came in")
        return replace(before, mlx=status, detail=detail)

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER), str(theirs.fileno()), *self._flags],
                pass_fds=[theirs.fileno()],
            )
        self._connection = Connection(ours.detach())
        try:
            if not self._connection.poll(_START_SECONDS):
                self.stop(kill=True)
                raise RuntimeError(f"a worker did not start within {_START_SECONDS} s")
            self._connection.recv()
        except EOFError:
            raise RuntimeError("a worker did not start: see its error above") from None
        return self._connection

    def stop(self, kill: bool = False) -> int:
        """End the process; returns its exit status."""
        if self._connection is not None:
            self._connection.close()
        if self._process is None:
            return 0
        if kill:
            self._process.kill()
        try:
            code = self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = self._connection = None
        return code
