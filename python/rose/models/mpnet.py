"""MPNet (Song et al., 2020): BERT with a learned bias for each distance, shared by all layers."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from rose.attention.base import AttentionBackend, PositionBias
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.renamed_weights import RenamedWeights
from rose.forward_batch import ForwardBatch
from rose.layers.linear import load_linear
from rose.models.base import WeightSource
from rose.models.bert import BertModel

_TENSOR_NAMES = (
    (".attention.self.query.", ".attention.attn.q."),
    (".attention.self.key.", ".attention.attn.k."),
    (".attention.self.value.", ".attention.attn.v."),
    (".attention.output.dense.", ".attention.attn.o."),
    (".attention.output.LayerNorm.", ".attention.LayerNorm."),
)
_NUM_BUCKETS = 32
_MAX_DISTANCE = 128
# The padding id, which is fixed, takes the position rows up to itself.
_FIRST_POSITION = 2


class MPNetModel(BertModel):
    """Embeddings and encoder layers; a `Backbone`."""

    base_prefix = "mpnet."
    unused_weights: ClassVar[tuple[str, ...]] = (
        "*pooler.*",
        "lm_head.*",
        "classifier.*",
        "*.position_ids",
    )
    token_types = False
    position_offset = _FIRST_POSITION

    def __init__(self, config: JsonObject, weights: WeightSource) -> None:
        values = config.values | {"type_vocab_size": 0}
        super().__init__(JsonObject(config.label, values), RenamedWeights(weights, _TENSOR_NAMES))

    def position_bias(
        self, config: JsonObject, weights: WeightSource, prefix: str
    ) -> PositionBias | None:
        """One number for each head and bucket of distances."""
        num_buckets = config.integer("relative_attention_num_buckets", _NUM_BUCKETS)
        if num_buckets != _NUM_BUCKETS:
            raise config.wrong("relative_attention_num_buckets", str(_NUM_BUCKETS), num_buckets)
        table = weights.take(
            f"{prefix}encoder.relative_attention_bias.weight",
            num_buckets,
            config.integer("num_attention_heads"),
        )
        reach = self.max_positions - 1
        distances = torch.arange(-reach, reach + 1, device=weights.device)
        return PositionBias(table[distance_buckets(distances)].t().contiguous())


class MPNetForSequenceClassification:
    """Dense layer with tanh over the first token, then one logit for each label; a `Model`."""

    unused_weights: ClassVar[tuple[str, ...]] = ("lm_head.*", "*pooler.*", "*.position_ids")

    def __init__(self, config: JsonObject, weights: WeightSource, num_labels: int) -> None:
        self.backbone = MPNetModel(config, weights)
        self.output_width = num_labels
        hidden = self.backbone.hidden_size
        self.dense = load_linear(weights, "classifier.dense", hidden, hidden, activation="tanh")
        self.out_proj = load_linear(weights, "classifier.out_proj", hidden, num_labels)

    def __call__(self, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """Logits [padded_sequences, num_labels] float32."""
        return self.out_proj(self.dense(self.backbone(batch, attention, "first"))).float()


def distance_buckets(distances: torch.Tensor) -> torch.Tensor:
    """T5's buckets of key minus query: half for each side, exact when near, then logarithmic."""
    side = _NUM_BUCKETS // 2
    exact = side // 2
    magnitude = distances.abs()
    # Where the distance is small the logarithm is not used; it must only be finite.
    scaled = torch.log(magnitude.clamp(min=1).float() / exact) / math.log(_MAX_DISTANCE / exact)
    far = (exact + (scaled * (side - exact)).long()).clamp(max=side - 1)
    return torch.where(magnitude < exact, magnitude, far) + (distances > 0).long() * side
