"""The command line against a scripted server: what is printed, and the exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rose._proto import tulip_pb2 as pb

from .command import refused, rose


def test_score_prints_a_ranked_table(by_length: Any, tmp_path: Path) -> None:
    documents = tmp_path / "documents.txt"
    documents.write_text("\ufeffbb\n\na\x1b[31m\r\nccc\n\n", newline="")
    done = rose(
        "score", "--query", "q", "--documents", str(documents), "--address", by_length.address
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["rank", "score", "document", "text"],
        ["1", "6.00000", "1", "a", "[31m"],
        ["2", "3.00000", "2", "ccc"],
        ["3", "2.00000", "0", "bb"],
    ]
    assert [d.text for d in by_length.requests[0].documents] == ["bb", "a\x1b[31m", "ccc"]


def test_score_reads_jsonl_from_stdin_and_prints_json(by_length: Any) -> None:
    lines = '{"id": "x", "text": "aa", "more": 1}\n"b"\n\n{"text": "ccc\\ud800"}\n'
    done = rose(
        *("score", "--query", "q", "--documents", "-", "--json", "--top-n", "2"),
        *("--raw-scores", "--instruction", "i"),
        stdin=lines,
        env={"ROSE_ADDRESS": by_length.address},
    )
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["results"] == [
        {"index": 2, "score": 4.0, "text": "ccc\ufffd"},
        {"index": 0, "id": "x", "score": 2.0, "text": "aa"},
    ]
    assert answer["fingerprint"] == "f1"
    (request,) = by_length.requests
    assert (request.raw_scores, request.instruction, request.top_n) == (True, "i", 2)


def test_score_tells_which_line_could_not_be_scored(tulip: Any) -> None:
    @tulip.on("Score")
    def score(request: Any, context: Any) -> pb.ScoreResponse:
        error = pb.ItemError(index=1, reason=pb.ERROR_REASON_TOO_LONG, message="documents[1]: long")
        return pb.ScoreResponse(scores=[1, 0], ranking=[0], item_errors=[error])

    done = rose(
        *("score", "--query", "q", "--documents", "-", "--address", tulip.address), stdin="a\n\nb\n"
    )
    assert done.returncode == 0
    assert done.stderr == "rose: -: line 3: not scored: documents[1]: long\n"


@pytest.mark.parametrize(
    ("stdin", "text"),
    [
        ("", "-: has no documents"),
        (b"good\nbad \xff\n", "-: line 2: not UTF-8 at byte 4"),
        ('{"text": "a"}\n{"text": 3}\n', "-: line 2: `text` must be a string, is int"),
        ('{"text": "a"}\nplain\n', "-: line 2: not JSON"),
        ('{"text": "a"}\n[1]\n', "-: line 2: must be a string or an object with `text`"),
        ('{"text": "a", "id": []}\n', "-: line 1: `id` must be a string or a number"),
        ('{"text": "a", "id": true}\n', "-: line 1: `id` must be a string or a number"),
        ('{"text": "a"}\n' + "[" * 100_000, "-: line 2: not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_names_the_line(
    by_length: Any, stdin: str | bytes, text: str
) -> None:
    done = rose(
        *("score", "--query", "q", "--documents", "-", "--address", by_length.address), stdin=stdin
    )
    refused(done, 2, text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["score", "--query", "q"], "Missing option '--documents'"),
        (["score", "--query", "q", "--documents", "/no/such"], "/no/such: No such file"),
        (["embed", "-", "--output", "x.csv"], "--output: must end in .npy or .jsonl"),
        (["serve", "m", "--dtype", "int3"], "--dtype must be one of auto, float32"),
        (["serve", "m", "--grpc-address", "x"], "--grpc-address must be HOST:PORT"),
        (["serve", "m", "--grpc-address", "1.2.3.4:99999"], "--grpc-address must be HOST:PORT"),
        (["serve", "m", "--max-batch-tokens", "0"], "--max-batch-tokens must be"),
        (
            ["serve", "m", "--worker-threads", "x"],
            "Invalid value for '--worker-threads' (or ROSE_SERVE_WORKER_THREADS): ",
        ),
        (
            ["score", "--query", "q", "--documents", "-", "--format", "yaml"],
            "Invalid value for '--format': 'yaml' is not one of 'auto', 'lines', 'jsonl'",
        ),
        (["info", "--timeout", "0"], "--timeout"),
        (["serve"], "Missing argument 'MODEL'"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(arguments: list[str], text: str) -> None:
    refused(rose(*arguments), 2, text)


def test_a_refusal_by_the_server_is_one_line_and_status_1(tulip: Any) -> None:
    import grpc

    @tulip.on("Score")
    def score(request: Any, context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "query: must not be empty")

    done = rose(
        *("score", "--query", "", "--documents", "-", "--address", tulip.address), stdin="a\n"
    )
    refused(done, 1, "query: must not be empty")


def test_nobody_there_is_status_1() -> None:
    refused(rose("info", "--address", "127.0.0.1:1"), 1, "127.0.0.1:1")


def test_a_port_that_cannot_be_is_not_taken_for_another() -> None:
    refused(rose("info", "--address", "127.0.0.1:99999"), 1, "port must be at most 65535")


def test_options_of_serve_come_from_the_environment_and_never_from_kubernetes() -> None:
    done = rose("serve", "m", env={"ROSE_SERVE_DTYPE": "int3"})
    refused(done, 2, "--dtype must be one of")
    injected = {
        "ROSE_PORT": "tcp://10.0.0.1:50051",
        "ROSE_SERVICE_HOST": "10.0.0.1",
        "ROSE_PORT_50051_TCP": "tcp://10.0.0.1:50051",
        "ROSE_SERVE_PORT": "tcp://10.0.0.1:50051",
        "ROSE_SERVE_SERVICE_PORT": "50051",
    }
    done = rose("serve", "m", "--dtype", "int4", env=injected)
    refused(done, 2, "got 'int4'")


def test_every_option_of_serve_is_in_the_readme_and_has_a_variable() -> None:
    help_text = " ".join(rose("serve", "--help").stdout.split())
    options = set(re.findall(r"--[a-z-]+", help_text)) - {"--help"}
    options = {option for option in options if not option.startswith("--no-")}
    assert len(options) > 15
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    for option in options:
        assert option in readme
        assert f"ROSE_SERVE_{option[2:].replace('-', '_').upper()}" in help_text


def test_info_lists_what_is_served(tulip: Any) -> None:
    @tulip.on("GetModel")
    def get_model(request: Any, context: Any) -> pb.GetModelResponse:
        return pb.GetModelResponse(
            model="m",
            task=pb.TASK_SCORE,
            labels=["no", "yes"],
            limits=pb.Limits(max_sequence_tokens=512),
            template=pb.Template(pair="{query}\n{document}"),
        )

    done = rose("info", "--address", tulip.address)
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert rows["name"] == "m"
    assert rows["task"] == "score"
    assert rows["labels"] == "no, yes"
    assert rows["limits.max_sequence_tokens"] == "512"
    assert rows["template.pair"] == "'{query}\\n{document}'"
    done = rose("info", "--json", "--address", tulip.address)
    assert json.loads(done.stdout)["limits"]["max_sequence_tokens"] == 512


def test_help_and_version_load_neither_torch_nor_grpc() -> None:
    probe = (
        "import sys; sys.argv = ['rose', '--version']\n"
        "from rose.cli import main\n"
        "status = main()\n"
        "heavy = {'torch', 'grpc', 'numpy'} & set(sys.modules)\n"
        "sys.exit(status or (f'loaded {heavy}' if heavy else 0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("rose ")


def test_brackets_without_end_are_a_text(by_length: Any) -> None:
    done = rose(
        *("score", "--query", "q", "--documents", "-", "--address", by_length.address),
        stdin="[" * 100_000,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_terminal_cannot_show_is_escaped(by_length: Any) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "ROSE_ADDRESS": by_length.address}
    score = ("score", "--query", "q", "--documents", "-")
    done = rose(*score, stdin="b\U0001f41de\n", env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert "b\\U0001f41de" in done.stdout
    done = rose(*score, "--json", stdin="b\U0001f41de\n", env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["results"][0]["text"] == "b\U0001f41de"


def test_an_id_cannot_command_the_terminal(by_length: Any) -> None:
    done = rose(
        *("score", "--query", "q", "--documents", "-", "--address", by_length.address),
        stdin='{"text": "a", "id": "x\\u001b[31m\\ny"}\n',
    )
    assert done.stdout.splitlines()[1].split() == ["1", "1.00000", "x", "[31m", "y", "a"]


@pytest.mark.parametrize(("closed", "status"), [("<&-", 2), (">&-", 0), ("2>&-", 0)])
def test_a_closed_stream_is_no_crash(by_length: Any, closed: str, status: int) -> None:
    command = f"{sys.executable} -m rose.cli score --query q --documents - {closed}"
    done = subprocess.run(
        ["bash", "-c", command],
        input="a\n",
        capture_output=True,
        text=True,
        env={**os.environ, "ROSE_ADDRESS": by_length.address},
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


def test_the_reader_of_the_output_may_leave(by_length: Any) -> None:
    command = f"{sys.executable} -m rose.cli score --query q --documents - | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command],
        input=("word " * 40 + "\n") * 5000,
        capture_output=True,
        text=True,
        env={**os.environ, "ROSE_ADDRESS": by_length.address},
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("rank")
    assert done.stderr == ""
