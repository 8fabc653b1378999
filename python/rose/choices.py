"""Values that are chosen by name. Imports nothing, so that a command line can list them."""

from __future__ import annotations

from typing import Literal, TypeAlias

PriorityName: TypeAlias = Literal["interactive", "bulk"]
TruncationName: TypeAlias = Literal["error", "cut", "chunk_max"]
InputTypeName: TypeAlias = Literal["query", "document"]
DTypeName: TypeAlias = Literal[
    "float32", "float16", "bfloat16", "int8", "uint8", "binary", "ubinary"
]
OutputName: TypeAlias = Literal["dense", "sparse", "tokens"]
