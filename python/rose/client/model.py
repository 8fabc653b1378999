"""What a server says about the model that it serves."""

from __future__ import annotations

from dataclasses import dataclass

from rose._proto import tulip_pb2 as pb


@dataclass(frozen=True)
class Limits:
    """Bounds of one request, and of the server."""

    max_sequence_tokens: int
    max_items_per_request: int
    max_batch_tokens: int
    max_queued_tokens: int
    max_message_bytes: int
    max_requests_per_stream: int


@dataclass(frozen=True)
class Template:
    """Text around the parts: `{query}`, `{document}`, `{instruction}`; cut at marks `{split}`.

    What is between `{if instruction}` and `{end}` is there only with an instruction.
    """

    pair: str
    query: str
    document: str
    default_instruction: str
    prompts: dict[str, str]
    default_prompt_name: str
    strip: bool
    lower_case: bool


@dataclass(frozen=True)
class ServedModel:
    """A model as it is served.

    Attributes:
        task: `embed`, `score` or `classify`.
        dimensions: Of the vectors; 0 for cross-encoders.
        truncation_side: Which end of a text that is too long is cut off, `right` or `left`, where
            the request does not say.
        tokenizer_json: The tokenizer's file, empty unless asked for.
        fingerprint: Of weights, tokenizer and options; every answer carries it.
    """

    name: str
    architecture: str
    task: str
    limits: Limits
    pooling: str
    normalized: bool
    similarity: str
    dimensions: int
    matryoshka_dimensions: tuple[int, ...]
    outputs: tuple[str, ...]
    labels: tuple[str, ...]
    positive_label: str
    score_activation: str
    dtype: str
    device: str
    vocab_size: int
    template: Template
    truncation_side: str
    tokenizer_json: bytes
    tokenizer_sha256: str
    fingerprint: str
    server_version: str

    @classmethod
    def from_proto(cls, message: pb.GetModelResponse) -> ServedModel:
        """Reads the message."""
        limits, template = message.limits, message.template
        return cls(
            name=message.model,
            architecture=message.architecture,
            task=pb.Task.Name(message.task).removeprefix("TASK_").lower(),
            limits=Limits(
                limits.max_sequence_tokens,
                limits.max_items_per_request,
                limits.max_batch_tokens,
                limits.max_queued_tokens,
                limits.max_message_bytes,
                limits.max_requests_per_stream,
            ),
            pooling=message.pooling,
            normalized=message.normalized,
            similarity=message.similarity,
            dimensions=message.dimensions,
            matryoshka_dimensions=tuple(message.matryoshka_dimensions),
            outputs=tuple(
                pb.OutputKind.Name(kind).removeprefix("OUTPUT_KIND_").lower()
                for kind in message.outputs
            ),
            labels=tuple(message.labels),
            positive_label=message.positive_label,
            score_activation=message.score_activation,
            dtype=message.dtype,
            device=message.device,
            vocab_size=message.vocab_size,
            template=Template(
                template.pair,
                template.query,
                template.document,
                template.default_instruction,
                dict(template.prompts),
                template.default_prompt_name,
                template.strip,
                template.lower_case,
            ),
            truncation_side="left"
            if message.truncation_side == pb.TRUNCATION_SIDE_LEFT
            else "right",
            tokenizer_json=message.tokenizer.tokenizer_json,
            tokenizer_sha256=message.tokenizer.sha256,
            fingerprint=message.fingerprint,
            server_version=message.server_version,
        )
