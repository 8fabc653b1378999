"""Every way a process with a server in it can end: in order, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import sys, threading, time
import rose
import rose.client
from rose.config import EngineConfig, ServeConfig
from rose.engine.engine import Engine
from rose.server import Server, ServerError, serve

engine = Engine.load("demo")
server = Server(ServeConfig(grpc_address="127.0.0.1:0", log_level="info"), EngineConfig())
server.start(engine)
client = rose.Client(server.address, timeout=20)
assert len(client.embed(["a"]).embeddings) == 1
"""


def run(body: str, prelude: str = PRELUDE) -> subprocess.CompletedProcess[str]:
    """Runs a script to its end; a hang fails the test."""
    script = prelude + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=False
    )


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        pytest.param("", 0, id="the script ends"),
        pytest.param("sys.exit(7)", 7, id="sys.exit"),
        pytest.param("raise RuntimeError('boom')", 1, id="an exception"),
        pytest.param(
            "client.close(); server.shutdown(); server.shutdown()", 0, id="shutdown twice"
        ),
        pytest.param(
            "threading.Thread(target=lambda: [client.embed(['x'] * 50) for _ in range(3)]).start()\n"
            "time.sleep(0.05)",
            0,
            id="under load",
        ),
    ],
)
def test_the_interpreter_exits_in_order(ending: str, code: int) -> None:
    done = run(ending)
    assert done.returncode == code, done.stderr
    assert "panicked" not in done.stderr
    assert "Fatal Python error" not in done.stderr


def test_an_exception_in_a_step_fails_that_batch_and_the_server_goes_on() -> None:
    done = run(
        """
        from rose.client.errors import Internal
        real = engine.step_slot
        server.shutdown()
        def broken(*arguments):
            calls.append(1)
            if len(calls) == 1:
                raise ValueError("the model is confused")
            return real(*arguments)
        calls = []
        engine.step_slot = broken
        with Server(ServeConfig(grpc_address="127.0.0.1:0"), EngineConfig()) as server:
            server.start(engine)
            with rose.Client(server.address, timeout=20) as client:
                try:
                    client.embed(["a"])
                except Internal as error:
                    assert "the model is confused" in str(error), error
                    print("failed")
                assert client.embed(["a"]).embeddings.shape == (1, 384)
                print("served")
    """
    )
    assert done.stdout.split() == ["failed", "served"], done.stderr


def test_a_broken_device_makes_the_server_unhealthy_and_the_wait_raise() -> None:
    done = run("""
        from rose.client.errors import Unavailable
        from rose.errors import DeviceError
        server.shutdown()
        def broken(*arguments):
            raise DeviceError("an illegal memory access was encountered")
        engine.step_slot = broken
        server = Server(ServeConfig(grpc_address="127.0.0.1:0"), EngineConfig())
        server.start(engine)
        once = rose.client.RetryPolicy(max_attempts=1)
        with rose.Client(server.address, timeout=20, retry=once) as client:
            for _ in range(2):
                try:
                    client.embed(["a"])
                except Unavailable as error:
                    print("unavailable", "illegal memory" in str(error))
        try:
            while not server.wait(0.1):
                pass
        except ServerError as error:
            print("raised", "illegal memory" in str(error))
    """)
    assert done.stdout.split() == [
        "unavailable",
        "True",
        "unavailable",
        "True",
        "raised",
        "True",
    ], done.stdout + done.stderr
    assert done.returncode == 0


def test_a_second_engine_is_refused() -> None:
    done = run("""
        try:
            server.start(engine)
        except ServerError as error:
            print(error)
    """)
    assert done.stdout.strip() == "this server has an engine already", done.stderr


def test_a_forked_child_does_not_wait_for_threads_it_has_not() -> None:
    done = run("""
        import os
        child = os.fork()
        if child == 0:
            try:
                server.begin_drain()
            except RuntimeError as error:
                print(error, flush=True)
            sys.exit(3)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        assert client.embed(["a"]).embeddings.shape == (1, 384)
    """)
    assert done.stdout.splitlines() == [
        "this server was started by another process: it does not survive a fork",
        "3",
    ], done.stderr
    assert done.returncode == 0
