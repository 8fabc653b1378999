"""Pieces side by side: all are done, each on one thread, and a failure is heard."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from rose.engine.cpu_workers import CpuWorkers


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_every_item_is_done_once_by_threads_of_one_thread_each() -> None:
    done: list[tuple[int, int]] = []
    states: list[object] = []

    def make_state() -> object:
        states.append(object())
        return states[-1]

    def work(state: object, item: int) -> None:
        assert state in states
        done.append((item, torch.get_num_threads()))

    workers = CpuWorkers(make_state, work)
    workers.run(range(100))
    workers.run([])
    workers.run([100])
    assert sorted(done) == [(item, 1) for item in range(101)]
    assert len(states) == 2
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_threads_made_later_get_all_threads() -> None:
    CpuWorkers(object, lambda state, item: None).run([1])
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [2]


@pytest.mark.usefixtures("two_threads")
def test_a_failure_is_raised_when_all_have_ended_and_work_goes_on() -> None:
    done: list[int] = []

    def work(state: object, item: int) -> None:
        if item == 3:
            raise ValueError("item 3")
        done.append(item)

    workers = CpuWorkers(object, work)
    with pytest.raises(ValueError, match="item 3"):
        workers.run(range(8))
    assert sorted(done) == [0, 1, 2, 4, 5, 6, 7]
    workers.run([8])
    assert 8 in done


@pytest.mark.usefixtures("two_threads")
def test_a_state_that_cannot_be_made_is_an_error_not_a_hang() -> None:
    def make_state() -> object:
        raise MemoryError("no room")

    workers = CpuWorkers(make_state, lambda state, item: None)
    for _ in range(2):
        with pytest.raises(MemoryError, match="no room"):
            workers.run([1])


def interrupt() -> None:
    """Ctrl-C, which reaches the main thread."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


@pytest.mark.usefixtures("two_threads")
def test_an_interrupted_caller_leaves_no_item_at_work_and_none_for_the_next() -> None:
    begun: list[int] = []
    ended: list[int] = []
    go_on = threading.Event()

    def work(state: object, item: int) -> None:
        begun.append(item)
        if item < 10:
            if len(begun) == 2:
                interrupt()
                # On a busy machine the caller takes a while to notice.
                threading.Timer(1.0, go_on.set).start()
            go_on.wait(30)
        ended.append(item)

    workers = CpuWorkers(object, work)
    with pytest.raises(KeyboardInterrupt):
        workers.run(range(10))
    assert sorted(begun) == sorted(ended) == [0, 1]
    workers.run(range(10, 20))
    assert sorted(ended) == [0, 1, *range(10, 20)]


def test_a_program_that_is_interrupted_in_a_step_ends_by_itself() -> None:
    """A thread that the dying interpreter ends inside of torch takes the process with it."""
    program = """
import signal, threading, torch
from rose.engine.cpu_workers import CpuWorkers
signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(2)
rows = torch.randn(1000, 1000)
main = threading.main_thread().ident
begun = threading.Barrier(2, lambda: signal.pthread_kill(main, signal.SIGINT))

def work(state, item):
    if item < 2:
        begun.wait()
    for _ in range(20):
        rows @ rows

try:
    CpuWorkers(object, work).run(range(100))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
