"""`rose embed` against a scripted server: files, progress, failures."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rose._proto import tulip_pb2 as pb

from .command import refused, rose


def embed_of_stream(tulip: Any) -> None:
    tulip.handlers["EmbedStream"] = tulip.echo(pb.EmbedStreamResponse, tulip.embed_by_length)


def test_embed_writes_an_array_with_a_row_for_each_line(tulip: Any, tmp_path: Path) -> None:
    embed_of_stream(tulip)
    texts = tmp_path / "texts.txt"
    texts.write_text("".join("x" * (n % 50) + "\n" for n in range(1000)))
    output = tmp_path / "vectors.npy"
    done = rose(
        *("embed", str(texts), "-o", str(output), "--address", tulip.address),
        *("--batch-size", "7", "--in-flight", "3"),
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    vectors = np.load(output)
    assert (vectors.shape, vectors.dtype) == ((1000, 2), np.float32)
    assert vectors[:, 0].tolist() == [n % 50 for n in range(1000)]
    assert sorted(os.listdir(tmp_path)) == ["texts.txt", "vectors.npy"]


def test_embed_prints_json_lines(tulip: Any) -> None:
    embed_of_stream(tulip)
    done = rose(*("embed", "-", "--address", tulip.address), stdin='{"id": 7, "text": "aa"}\n"b"\n')
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"index": 0, "id": 7, "embedding": [2.0, 1.0]},
        {"index": 1, "embedding": [1.0, 1.0]},
    ]


def test_embed_shows_progress_when_asked_to(tulip: Any) -> None:
    embed_of_stream(tulip)
    done = rose("embed", "-", "--progress", "--address", tulip.address, stdin="a\n" * 100)
    assert done.returncode == 0
    assert "100" in done.stderr
    assert "texts/s" in done.stderr


def test_embed_of_a_long_file_shows_progress_on_a_terminal(tulip: Any, tmp_path: Path) -> None:
    embed_of_stream(tulip)
    texts, output = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    texts.write_text("a\n" * 1500)
    terminal, ours = pty.openpty()
    command = [sys.executable, "-m", "rose.cli", "embed", str(texts), "-o", str(output)]
    subprocess.run(
        [*command, "--address", tulip.address], stdout=ours, stderr=ours, timeout=60, check=True
    )
    os.close(ours)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert "100%" in shown
    assert "texts/s" in shown


def test_a_text_that_fails_is_told_and_the_others_are_written(tulip: Any, tmp_path: Path) -> None:
    def answer(request: pb.EmbedRequest) -> pb.EmbedResponse:
        response = tulip.embed_by_length(request)
        for index, each in enumerate(request.inputs):
            if each.text.startswith("bad"):
                response.item_errors.add(index=index, message="too long")
        return response

    tulip.handlers["EmbedStream"] = tulip.echo(pb.EmbedStreamResponse, answer)
    output = tmp_path / "vectors.npy"
    arguments = ("embed", "-", "--address", tulip.address, "--batch-size", "2")
    lines = "bad one\nbad two\nbad three\ngood\nbad\nfine\n"
    done = rose(*arguments, "-o", str(output), stdin=lines)
    assert done.returncode == 1
    assert "line 2: not embedded: too long" in done.stderr
    assert "4 of the texts of - not embedded" in done.stderr
    assert np.load(output).tolist() == [[0, 0], [0, 0], [0, 0], [4, 1], [0, 0], [4, 1]]
    done = rose(*arguments, stdin=lines)
    assert json.loads(done.stdout.splitlines()[1]) == {"index": 1, "error": "too long"}


def test_a_full_queue_is_waited_out(tulip: Any) -> None:
    refusals: list[int] = []

    @tulip.on("EmbedStream")
    def handler(requests: Any, context: Any) -> Any:
        for request in requests:
            if len(refusals) < 3:
                refusals.append(1)
                error = pb.StreamError(code=8, message="queue is full", retry_after_ms=10)
                yield pb.EmbedStreamResponse(request_id=request.request_id, error=error)
            else:
                yield pb.EmbedStreamResponse(
                    request_id=request.request_id, response=tulip.embed_by_length(request)
                )

    done = rose("embed", "-", "--address", tulip.address, stdin="a\nbb\n")
    assert done.returncode == 0
    assert [json.loads(line)["embedding"][0] for line in done.stdout.splitlines()] == [1, 2]
    assert len(refusals) == 3


def test_a_failure_leaves_no_half_written_file(tulip: Any, tmp_path: Path) -> None:
    @tulip.on("EmbedStream")
    def handler(requests: Any, context: Any) -> Any:
        for count, request in enumerate(requests):
            if count == 2:
                error = pb.StreamError(code=9, message="this model does not embed")
                yield pb.EmbedStreamResponse(request_id=request.request_id, error=error)
            else:
                yield pb.EmbedStreamResponse(
                    request_id=request.request_id, response=tulip.embed_by_length(request)
                )

    output = tmp_path / "vectors.npy"
    done = rose(
        *("embed", "-", "-o", str(output), "--address", tulip.address, "--batch-size", "1"),
        stdin="a\n" * 10,
    )
    refused(done, 1, "this model does not embed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fifo", [False, True], ids=["stdin", "fifo"])
def test_interrupted_while_it_waits_for_texts(tulip: Any, tmp_path: Path, fifo: bool) -> None:
    came = threading.Event()

    @tulip.on("EmbedStream")
    def embed(requests: Any, context: Any) -> Any:
        came.set()
        yield from ()
        for _ in requests:
            pass

    path = tmp_path / "texts"
    os.mkfifo(path)
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "rose.cli", "embed", str(path) if fifo else "-"),
            *("--address", tulip.address),
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdin is not None
            with path.open("wb", buffering=0) if fifo else process.stdin as texts:
                texts.write(b"a\n" * 2)
                texts.flush()
                assert came.wait(30)
                process.send_signal(signal.SIGINT)
                assert process.wait(20) == 130
            assert process.stderr is not None
            assert process.stderr.read() == b""
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["vectors.npy", "vectors.jsonl"])
def test_a_full_disk_is_told_with_the_name_and_leaves_nothing(
    tulip: Any, tmp_path: Path, name: str
) -> None:
    embed_of_stream(tulip)
    (tmp_path / f"{name}.part").symlink_to("/dev/full")
    output = tmp_path / name
    done = rose("embed", "-", "-o", str(output), "--address", tulip.address, stdin="a\n")
    refused(done, 2, f"--output: {output}: No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_directory_is_refused_before_the_work(tmp_path: Path) -> None:
    output = tmp_path / "vectors.npy"
    output.mkdir()
    done = rose("embed", "-", "-o", str(output), "--address", "127.0.0.1:1", stdin="a\n")
    refused(done, 2, f"--output: {output}: is a directory")
    assert list(tmp_path.iterdir()) == [output]
