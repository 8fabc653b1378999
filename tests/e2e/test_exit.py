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
    assert "Traceback" not in done.stderr


def test_a_timeout_that_is_none_leaves_the_server_running() -> None:
    done = run("""
        for timeout in (-1, float("nan"), float("inf")):
            try:
                server.shutdown(timeout)
            except ValueError as error:
                print(str(error).split(":")[0])
        assert client.embed(["a"]).embeddings.shape == (1, 384)
        assert server.shutdown(5)
        assert server.wait(0)
    """)
    assert done.stdout.split() == ["timeout"] * 3, done.stderr
    assert done.returncode == 0, done.stderr


def test_who_stops_a_stopping_server_waits_for_its_end() -> None:
    done = run("""
        running, go_on = threading.Event(), threading.Event()
        server.shutdown()
        real = engine.step_slot
        def held(*arguments):
            running.set()
            go_on.wait(20)
            return real(*arguments)
        engine.step_slot = held
        server = Server(ServeConfig(grpc_address="127.0.0.1:0"), EngineConfig())
        server.start(engine)
        client = rose.Client(server.address, timeout=20)
        threading.Thread(target=client.embed, args=(["a"],), daemon=True).start()
        running.wait(20)
        threading.Thread(target=server.shutdown, daemon=True).start()
        threading.Timer(0.5, go_on.set).start()
        while not server.shutdown():
            pass
        print(go_on.is_set(), server.wait(0))
    """)
    assert done.stdout.split() == ["True", "True"], done.stderr
    assert done.returncode == 0, done.stderr


def test_a_step_may_stop_the_server_that_runs_it() -> None:
    done = run("""
        server.shutdown()
        real = engine.step_slot
        def last(*arguments):
            server.shutdown(0.1)
            time.sleep(0.3)
            return real(*arguments)
        engine.step_slot = last
        server = Server(ServeConfig(grpc_address="127.0.0.1:0"), EngineConfig())
        server.start(engine)
        once = rose.client.RetryPolicy(max_attempts=1)
        try:
            rose.Client(server.address, timeout=20, retry=once).embed(["a"])
        except rose.client.errors.Unavailable:
            print("unavailable")
    """)
    assert done.stdout.split() == ["unavailable"], done.stderr
    assert done.returncode == 0, done.stderr


def test_ctrl_c_cuts_a_drain_short() -> None:
    done = run("""
        import os, signal
        work = dict(inputs=["word " * 250] * 2000, priority="bulk", timeout=120)
        threading.Thread(target=client.embed, kwargs=work, daemon=True).start()
        watch = rose.Client(server.address, timeout=20)
        while watch.embed(["a"]).load.queued_sequences == 0:
            pass
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        try:
            server.shutdown(60)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begun < 20)
    """)
    assert done.stdout.split() == ["interrupted", "True"], done.stderr
    assert done.returncode == 0, done.stderr


def test_a_step_that_never_ends_does_not_keep_the_process() -> None:
    done = run("""
        server.shutdown()
        import rose.server
        rose.server._STEP_SECONDS = 0.5
        stuck = threading.Event()
        def forever(*arguments):
            stuck.set()
            threading.Event().wait()
        engine.step_slot = forever
        server = Server(ServeConfig(grpc_address="127.0.0.1:0"), EngineConfig())
        server.start(engine)
        client = rose.Client(server.address, timeout=20)
        threading.Thread(target=client.embed, args=(["a"],), daemon=True).start()
        stuck.wait(20)
        print(server.shutdown(0.2))
    """)
    assert done.stdout.split() == ["False"], done.stderr
    assert done.returncode == 0, done.stderr


def test_rose_serve_ends_with_status_1_when_its_device_breaks() -> None:
    done = run(
        """
        import sys, threading
        import rose
        from rose import server as rose_server
        from rose.cli import main
        from rose.errors import DeviceError

        def broken(*arguments):
            raise DeviceError("an illegal memory access was encountered")

        load = rose_server._load
        def load_broken(model, config):
            engine = load(model, config)
            engine.step_slot = broken
            return engine
        rose_server._load = load_broken

        start = rose_server.Server.start
        def start_and_ask(self, engine):
            started = start(self, engine)
            def ask():
                try:
                    rose.Client(self.address, timeout=20).embed(["a"])
                except rose.RoseError:
                    pass
            threading.Thread(target=ask, daemon=True).start()
            return started
        rose_server.Server.start = start_and_ask

        sys.argv = ["rose", "serve", "demo", "--grpc-address", "127.0.0.1:0"]
        sys.argv += ["--http-address", "off"]
        sys.exit(main())
        """,
        prelude="",
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("rose: error: the engine has failed: ")
    assert "illegal memory" in last
