"""A crash and a hang are outcomes, and the trials after them run."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import pool
from conformance.outcomes import CRASHED, HUNG, PASSED, SKIPPED
from conformance.trials import Trial

# Stands in for worker.py: it does what the trial's name says, before or with our provider.
WORKER = f"""
import os, sys, time
from multiprocessing.connection import Connection
sys.path.insert(0, {str(Path(pool.__file__).parent.parent)!r})
from conformance.outcomes import PASSED, Outcome
connection = Connection(int(sys.argv[1]))
connection.send("ready")
while True:
    try:
        name = connection.recv().name
    except EOFError:
        break
    outcome = Outcome("node", name, "", cpu=PASSED, mlx=PASSED)
    if "before" not in name:
        connection.send((outcome, False))
    if "crash" in name:
        os.abort()
    if "hang" in name:
        time.sleep(60)
    connection.send((outcome, True))
"""


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> dict[str, tuple[str, str]]:
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    monkeypatch.setattr(pool, "WORKER", worker)
    trials = [Trial("node", name, "", "", b"", ()) for name in names]
    found = pool.run_trials(trials, jobs=1, seconds=10)
    return {o.name: (o.mlx, o.detail) for o in found}


def test_crashes_cost_one_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(tmp_path, monkeypatch, "fine", "crash", "fine too", "crash before", "last")
    assert found["crash"] == (CRASHED, "exit status -6")
    assert found["crash before"][0] == SKIPPED
    assert "before our provider" in found["crash before"][1]
    assert {found[name][0] for name in ("fine", "fine too", "last")} == {PASSED}


def test_hangs_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(tmp_path, monkeypatch, "hang", "fine")
    assert found == {"hang": (HUNG, "no answer within 10 s"), "fine": (PASSED, "")}


def test_a_worker_that_does_not_start_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("")
    monkeypatch.setattr(pool, "WORKER", worker)
    with pytest.raises(RuntimeError, match="a worker did not start"):
        pool.run_trials([Trial("node", "any", "", "", b"", ())], jobs=1)
