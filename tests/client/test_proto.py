"""The checked-in messages are those of protos/tulip/v1/tulip.proto."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from rose._proto import tulip_pb2 as pb

ROOT = Path(__file__).resolve().parents[2]
CHECKED_IN = ROOT / "python" / "rose" / "_proto"
# Generated text differs between versions of the compiler, so one of them is the reference.
REFERENCE = "1.80.0"


def protoc(*arguments: str) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT / 'protos'}"]
    subprocess.run([*command, *arguments, "tulip/v1/tulip.proto"], check=True, timeout=60)


def test_descriptor_is_that_of_the_proto_file(tmp_path: Path) -> None:
    protoc(f"--descriptor_set_out={tmp_path / 'set'}")
    compiled = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file[0]
    # Only descriptor sets carry derived JSON names.
    for message in compiled.message_type:
        for part in (message, *message.nested_type):
            for field in part.field:
                field.ClearField("json_name")
    checked_in = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(checked_in)
    assert checked_in == compiled, "run `make proto`"


@pytest.mark.parametrize("suffix", ["py", "pyi"])
def test_text_is_what_the_reference_compiler_writes(tmp_path: Path, suffix: str) -> None:
    if importlib.metadata.version("grpcio-tools") != REFERENCE:
        pytest.skip(f"needs grpcio-tools {REFERENCE}, as requirements/dev.txt pins it")
    protoc(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}")
    name = f"tulip_pb2.{suffix}"
    generated = (tmp_path / "tulip" / "v1" / name).read_text()
    assert (CHECKED_IN / name).read_text() == generated, "run `make proto`"
