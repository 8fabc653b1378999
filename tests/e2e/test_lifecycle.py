"""How the process starts, stops and fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rose.client import Client, RetryPolicy, RoseError

NO_RETRY = RetryPolicy(max_attempts=1)


def rose(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rose.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "ROSE_SERVE_HTTP_ADDRESS": "off"} | environment,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    last = done.stderr.rstrip("\n").splitlines()[-1]
    assert last.startswith("rose: error: ")
    for part in parts:
        assert part in last


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_with_status_0(
    serve: Any, cross_encoder_directory: Path, signum: int
) -> None:
    with serve(cross_encoder_directory) as server:
        with Client(server.address) as client:
            client.score("q", ["d"])
        assert server.stop(signum) == (0, "")
        assert "Traceback" not in server.stderr.read_text()


def test_stdout_is_the_ready_line_alone(serve: Any, cross_encoder_directory: Path) -> None:
    with serve(cross_encoder_directory, "--log-level", "debug") as server:
        host, port = server.address.rsplit(":", 1)
        assert host == "127.0.0.1"
        assert int(port) > 0
        assert server.ready_line == f"ready grpc={host}:{port} model=tiny-reranker"
        with Client(server.address) as client:
            client.score("q", ["d"])
        assert server.stop() == (0, "")
    assert server.stderr.read_text() != ""


def test_logs_are_json_when_asked_for(serve: Any, cross_encoder_directory: Path) -> None:
    with serve(cross_encoder_directory, "--log-format", "json", "--log-level", "info") as server:
        server.stop()
    lines = server.stderr.read_text().splitlines()
    assert lines
    for line in lines:
        assert isinstance(json.loads(line), dict)


def test_work_in_flight_is_finished_before_the_end(serve: Any) -> None:
    with serve("demo", "--max-batch-tokens", "2048") as server:
        documents = ["word " * 200] * 120
        answers: list[Any] = []

        def ask() -> None:
            with Client(server.address, timeout=120, retry=NO_RETRY) as client:
                answers.append(client.score("q", documents, priority="bulk"))

        asking = threading.Thread(target=ask)
        asking.start()
        with Client(server.address) as client:
            wait_for(lambda: has_queued_work(client))
        status, _ = server.stop()
        asking.join(60)
    assert status == 0
    (answer,) = answers
    assert answer.ok.all()
    assert len(answer.scores) == 120


def test_a_draining_server_takes_no_new_work(serve: Any) -> None:
    with serve("demo", "--max-batch-tokens", "2048") as server:
        with Client(server.address, timeout=120, retry=NO_RETRY) as client:
            client.score("q", ["d"])
            texts = ["word " * 200] * 120
            asking = threading.Thread(target=lambda: client.score("q", texts, priority="bulk"))
            asking.start()
            wait_for(lambda: has_queued_work(client))
            server.process.send_signal(signal.SIGTERM)

            def is_refused() -> bool:
                try:
                    client.score("q", ["d"])
                except RoseError as error:
                    return error.code == "UNAVAILABLE"
                return False

            wait_for(is_refused)
            asking.join(60)
        assert server.wait()[0] == 0


def test_a_drain_that_takes_too_long_is_cut_short(serve: Any) -> None:
    with serve("demo", "--max-batch-tokens", "512", "--drain-timeout", "0.2") as server:
        errors: list[RoseError] = []

        def ask() -> None:
            with Client(server.address, timeout=120, retry=NO_RETRY) as client:
                try:
                    client.score("q", ["word " * 250] * 3000, priority="bulk")
                except RoseError as error:
                    errors.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        with Client(server.address) as client:
            wait_for(lambda: has_queued_work(client))
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < 20
        asking.join(20)
    (error,) = errors
    assert error.code == "UNAVAILABLE"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait_for_the_drain(serve: Any, signum: int) -> None:
    with serve("demo", "--max-batch-tokens", "512", "--drain-timeout", "60") as server:

        def ask() -> None:
            with Client(server.address, timeout=120, retry=NO_RETRY) as client, suppress(RoseError):
                client.score("q", ["word " * 250] * 3000, priority="bulk")

        asking = threading.Thread(target=ask)
        asking.start()
        with Client(server.address) as client:
            wait_for(lambda: has_queued_work(client))
        server.process.send_signal(signum)
        wait_for(lambda: "draining" in server.stderr.read_text())
        begun = time.monotonic()
        assert server.stop(signum)[0] == 128 + signum
        assert time.monotonic() - begun < 10
        asking.join(20)


def has_queued_work(client: Client) -> bool:
    """Whether bulk work waits: this call is interactive and does not wait behind it."""
    return client.score("q", ["d"]).load.queued_sequences > 0


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come true"


def test_a_taken_port_is_told_before_the_model_is_looked_for(minilm: Any) -> None:
    done = rose("serve", "/no/such/model", "--grpc-address", minilm.address)
    refused(done, "--grpc-address", minilm.address, "in use")


def test_options_come_from_the_environment(serve: Any, cross_encoder_directory: Path) -> None:
    with (
        serve(
            cross_encoder_directory,
            ROSE_SERVE_SERVED_MODEL_NAME="by-environment",
            ROSE_SERVE_MAX_ITEMS_PER_REQUEST="7",
            ROSE_PORT="tcp://10.0.0.1:50051",
            ROSE_SERVE_PORT="tcp://10.0.0.1:50051",
        ) as server,
        Client(server.address) as client,
    ):
        assert server.model == "by-environment"
        assert client.get_model().limits.max_items_per_request == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_BATCH_TOKENS", "many"),
        ("DRAIN_TIMEOUT", "soon"),
        ("STRICT_MODEL_NAME", "maybe"),
        ("WARMUP_TOKENS", "16 x"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(name: str, value: str) -> None:
    done = rose("serve", "demo", **{f"ROSE_SERVE_{name}": value})
    refused(done, f"ROSE_SERVE_{name}", f"got '{value.rpartition(' ')[2]}'")


def copy_of(model: Path, directory: Path) -> Path:
    return Path(shutil.copytree(model, directory / "model"))


def edit_config(directory: Path, **values: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_wrong_models_are_one_line_and_status_2(
    cross_encoder_directory: Path, tmp_path: Path
) -> None:
    port = ("--grpc-address", "127.0.0.1:0")
    refused(rose("serve", str(tmp_path / "nowhere"), *port), "nowhere")
    (tmp_path / "empty").mkdir()
    refused(rose("serve", str(tmp_path / "empty"), *port), "config.json")

    strange = copy_of(cross_encoder_directory, tmp_path / "strange")
    edit_config(strange, architectures=["MambaForCausalLM"], model_type="mamba")
    refused(rose("serve", str(strange), *port), "Mamba", "Bert")

    corrupt = copy_of(cross_encoder_directory, tmp_path / "corrupt")
    weights = corrupt / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused(rose("serve", str(corrupt), *port), "model.safetensors")

    pickled = copy_of(cross_encoder_directory, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    refused(rose("serve", str(pickled), *port), "safetensors")


def test_missing_and_extra_weights_are_named(cross_encoder_directory: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    directory = copy_of(cross_encoder_directory, tmp_path)
    weights = directory / "model.safetensors"
    tensors = load_file(weights)
    name = next(name for name in tensors if name.endswith("attention.self.query.weight"))
    removed = tensors.pop(name)
    save_file(tensors, weights)
    refused(rose("serve", str(directory), "--grpc-address", "127.0.0.1:0"), name)
    save_file(tensors | {name: removed, "bert.surplus.weight": removed.clone()}, weights)
    refused(rose("serve", str(directory), "--grpc-address", "127.0.0.1:0"), "bert.surplus.weight")


def test_the_demo_ranks_documents() -> None:
    done = rose("demo")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("ready grpc=127.0.0.1:")
    first = next(line for line in lines if line.split()[:1] == ["1"])
    last = next(line for line in lines if line.split()[:1] == ["10"])
    assert "bees" in first.lower()
    assert "Paris" in last


def test_commands_against_the_server(minilm: Any, tmp_path: Path) -> None:
    import numpy as np

    texts = tmp_path / "texts.txt"
    texts.write_text("bees live in a hive\nthe capital of France\nhoney is sweet\n")
    scored = rose(
        *("score", "--query", "insects", "--documents", str(texts), "--json"),
        *("--address", minilm.address),
    )
    assert scored.returncode == 0, scored.stderr
    results = json.loads(scored.stdout)["results"]
    assert results[-1]["text"] == "the capital of France"
    output = tmp_path / "vectors.npy"
    embedded = rose("embed", str(texts), "-o", str(output), "--address", minilm.address)
    assert embedded.returncode == 0, embedded.stderr
    with Client(minilm.address) as client:
        expected = client.embed(texts.read_text().splitlines()).embeddings
    assert np.abs(np.load(output) - expected).max() <= 1e-5
    told = rose("info", "--json", "--address", minilm.address)
    assert json.loads(told.stdout)["name"] == minilm.model
