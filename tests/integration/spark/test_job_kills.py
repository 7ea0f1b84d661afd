"""Driver, executor or Python worker are killed at a random moment of an epoch; the next run of the
same input ends with the exact state and output, and what gc lists can go without a loss.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from dstl_core import Snapshot
from dstl_core.model.ids import JobID
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from tests.integration.spark.job_functions import plain, random_batch

pytestmark = pytest.mark.spark
ANSWER_S = 240
ROOT = Path(__file__).parents[3]


class Killed(Exception):
    """The driver is gone."""


class Driver:
    """A driver process and all that it started, in a process group of their own."""

    def __init__(self, base, master):
        self._command = [sys.executable, "-m", "tests.integration.spark.kill_driver"]
        self.gate = base / f"gate-{uuid4()}"
        self._command += [str(base), master, str(self.gate)]
        self._process = None

    def start(self):
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},  # executors run in other folders
        )
        assert self._answer(ANSWER_S) == "ready"

    def send(self, **command):
        if self._process is None:
            self.start()
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, **command):
        self.send(**command)
        return self._answer(ANSWER_S)

    def answer_within(self, seconds):
        """The answer, or None if there is none yet."""
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._answer(ANSWER_S) if ready else None

    def wait(self):
        return self._answer(ANSWER_S)

    def _answer(self, seconds):
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        assert ready, "the driver does not answer"
        line = self._process.stdout.readline()
        if not line:
            self.kill()
            raise Killed
        return json.loads(line)

    def kill(self):
        """Ends the driver and its JVM at once, as the loss of its machine does."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None

    def pause(self):
        """Stops the driver and its JVM, as a machine that hangs does."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def wake(self):
        os.killpg(self._process.pid, signal.SIGCONT)

    @contextmanager
    def in_epoch(self, number):
        """Inside, the tasks of an epoch wait. Afterwards the list that is given has the answer."""
        self.gate.mkdir()
        os.mkfifo(self.gate / "entered")
        os.mkfifo(self.gate / "leave")
        answers, pipes = [], [os.open(self.gate / "entered", os.O_RDONLY | os.O_NONBLOCK)]
        self.send(do="run", input=number)
        try:
            ready, _, _ = select.select(pipes, [], [], ANSWER_S)
            assert ready, "no task has begun"
            yield answers
            pipes.append(os.open(self.gate / "leave", os.O_RDWR))
            answers.append(self.wait())
        finally:
            for pipe in pipes:
                os.close(pipe)

    def kill_one(self, what, chooser):
        """Kills one process that the driver has started; False if there is none now."""
        pids = [pid for pid in _descendants(self._process.pid) if what in _command_of(pid)]
        if what == "pyspark.daemon":  # the daemon is the parent of the workers
            pids = [pid for pid in pids if _parent(pid) in pids]
        if not pids:
            return False
        os.kill(chooser.choice(sorted(pids)), signal.SIGKILL)
        return True


def _parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _descendants(root):
    parents = {int(path.name): _parent(path.name) for path in Path("/proc").glob("[0-9]*")}
    descendants, waiting = set(), [root]
    while waiting:
        pid = waiting.pop()
        children = [each for each, parent in parents.items() if parent == pid]
        descendants.update(children)
        waiting += children
    return descendants


TARGETS = {"worker": "pyspark.daemon", "executor": "CoarseGrainedExecutorBackend"}


def run_with_kills(base, master, targets, kills, seed):
    """Runs epochs, each with a kill at a random moment, until so many have hit; what was done."""
    chooser = random.Random(seed)
    driver = Driver(base, master)
    batches, done = [random_batch(0), random_batch(1)], dict.fromkeys(targets, 0)
    garbage = 0
    try:
        took = _first_epochs(driver)
        while sum(done.values()) < kills:
            number = len(batches)
            batches.append(random_batch(number))
            target = targets[sum(done.values()) % len(targets)]
            killed, answer = _epoch_with_kill(
                driver, number, target, chooser.uniform(0, took), chooser
            )
            done[target] += killed
            if not killed:
                took /= 2  # a kill that comes at once meets the epoch, however fast it is
            if answer is None:
                answer = driver.ask(do="run", input=number)
            check_epoch(driver, batches, answer)
            garbage += check_files(base)
            check_epoch(driver, batches, driver.ask(do="run", input=number))
    finally:
        driver.kill()
    return {**done, "epochs": len(batches), "files deleted by gc": garbage}


def check_epoch(driver, batches, answer):
    assert sorted(map(tuple, answer)) == expected_output(batches)
    state = {key: (total, last) for key, total, last in driver.ask(do="state")}
    assert state == plain(batches)


def _first_epochs(driver):
    """Seconds of an epoch, of the second one: the first one starts the workers."""
    driver.ask(do="run", input=0)
    started = time.monotonic()
    driver.ask(do="run", input=1)
    return time.monotonic() - started


def _epoch_with_kill(driver, number, target, delay, chooser):
    """``(kills, answer)``; no answer if the epoch did not survive."""
    driver.send(do="run", input=number)
    try:
        answer = driver.answer_within(delay)
        if answer is not None:
            return 0, answer  # it was faster
        if target == "driver":
            driver.kill()
            return 1, None
        killed = driver.kill_one(TARGETS[target], chooser)
        return int(killed), driver.wait()
    except Killed:
        return 1, None


def expected_output(batches):
    """The running sums of the last batch."""
    sums = {key: total for key, (total, _) in plain(batches[:-1]).items()}
    rows = []
    for key, value, _ in sorted(batches[-1], key=lambda row: row[1]):
        sums[key] = sums.get(key, 0) + value
        rows.append((key, sums[key]))
    return sorted(rows)


def check_files(base):
    """What retained checkpoints name is whole without what gc lists; the number of its files."""
    folder = base / JobID.for_name("killed").hex
    garbage = collect_garbage(str(folder), delete=True, older_than_ms=0).garbage
    retained = [path for path in folder.glob("chk-*") if (path / "_metadata").exists()]
    assert retained
    for path in retained:
        assert not verify_snapshot(Snapshot.load(str(path))).findings
    return len(garbage)


def test_killed_drivers_and_workers_lose_and_repeat_nothing(tmp_path):
    done = run_with_kills(tmp_path, "local[2,4]", ["worker", "driver"], 2, 11)
    assert (done["worker"], done["driver"]) == (1, 1)


# Two more JVMs. In one process: test_a_driver_that_is_overtaken_in_the_middle_leaves_nothing, of
# tests/unit/local/test_job_epochs.py.
@pytest.mark.soak
def test_a_paused_driver_that_wakes_after_a_takeover_commits_nothing(tmp_path):
    paused, other = Driver(tmp_path, "local[2,4]"), Driver(tmp_path, "local[2,4]")
    batches = [random_batch(number) for number in range(3)]
    try:
        _first_epochs(paused)
        with paused.in_epoch(2) as answers:
            paused.pause()
            check_epoch(other, batches, other.ask(do="run", input=2))
            commits = sorted(tmp_path.glob("*/_dstl/log/*.json"))
            paused.wake()
        assert answers == ["fenced"]
        assert sorted(tmp_path.glob("*/_dstl/log/*.json")) == commits
        check_epoch(other, batches, other.ask(do="run", input=2))
        check_files(tmp_path)
    finally:
        paused.kill()
        other.kill()


CLUSTER = "local-cluster[2,1,1024]"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("master", "targets", "kills"),
    [
        ("local[2,4]", ["worker", "driver"], 13),
        ("local[2,4]", ["driver", "worker"], 13),
        (CLUSTER, ["executor", "worker", "driver"], 8),
        (CLUSTER, ["worker", "executor", "driver"], 8),
        (CLUSTER, ["driver", "executor", "worker"], 8),
    ],
)
def test_fifty_kills(tmp_path, request, master, targets, kills):
    seed = int(os.environ.get("DSTL_SOAK_SEED", "0"))
    done = run_with_kills(tmp_path, master, targets, kills, f"{seed} {request.node.name}")
    sys.stderr.write(f"{master}: {json.dumps(done)}\n")
