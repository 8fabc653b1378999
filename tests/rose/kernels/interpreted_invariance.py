"""Run by test_kernels_match_torch.py with TRITON_INTERPRET=1: rows of batch-invariant operations."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent))

from interpreted_checks import CPU, accept_new_numpy

from rose.attention import make_attention
from rose.checkpoint.json_object import JsonObject
from rose.checkpoint.random_weights import RandomWeights
from rose.config import BatchLayout
from rose.forward_batch import ForwardBatch
from rose.kernels import launch
from rose.kernels.invariance import batch_invariant
from rose.kernels.invariant_linear import Tile, choose_tile, invariant_linear
from rose.kernels.linear import add_linear_, interleave, linear, linear_gated, linear_gelu
from rose.kernels.pooling import mean_rows
from rose.layers import fused_encoder
from rose.layers import linear as linear_layers
from rose.layers.norm import LayerNorm
from rose.layers.pooled import PooledLayerNorm, ResidualDense
from rose.layers.pooling import Pooling
from rose.models import llama
from rose.models.bert import BertModel
from rose.models.causal_reranker import CausalReranker
from rose.models.embedding import EmbeddingModel
from rose.models.gemma3 import Gemma3Model
from rose.models.jina_bert import JinaBertModel
from rose.models.modernbert import ModernBertForSequenceClassification
from rose.models.nomic_bert import NomicBertModel
from rose.models.qwen3 import Qwen3ForSequenceClassification, Qwen3Model
from rose.models.xlm_roberta import XLMRobertaForSequenceClassification

# (width, depth): tiles of every kind, whole and cut ones.
SHAPES = ((1, 33), (3, 64), (48, 100), (129, 64), (200, 72))
# Of 16 bits, whose widest weights have a tile of their own.
WIDE = (3080, 70)
# Sums whose order may go by the shape of the whole tensor. Attention is called for one sequence at a
# time, so that its own are left out.
FORBIDDEN = {"addmm", "addmm_", "mm", "bmm", "baddbmm", "matmul", "linear", "native_layer_norm"}
FORBIDDEN |= {
    "sum",
    "mean",
    "linalg_vector_norm",
    "norm",
    "rms_norm",
    "_fused_rms_norm",
    "var_mean",
}


def check_linear() -> None:
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float16, 2e-3)):
        for width, depth in SHAPES if dtype == torch.float32 else (*SHAPES, WIDE):
            weight, bias = torch.randn(width, depth) / depth**0.5, torch.randn(width)
            x, residual = torch.randn(150, depth), torch.randn(150, width)
            x, weight, bias, residual = (part.to(dtype) for part in (x, weight, bias, residual))
            for rows in (1, 130) if width == 129 else (70,):
                plain = F.linear(x[:rows].float(), weight.float())
                some = residual[:rows].clone()
                with batch_invariant():
                    results = {
                        "plain": (linear(x[:rows], weight, None), plain),
                        "bias": (linear(x[:rows], weight, bias), plain + bias.float()),
                        "residual": (
                            add_linear_(some, x[:rows], weight),
                            plain + residual[:rows].float(),
                        ),
                        "gelu": (
                            linear_gelu(x[:rows], weight, bias),
                            F.gelu(plain + bias.float()),
                        ),
                        "tanh": (
                            linear_gelu(x[:rows], weight, bias, tanh=True),
                            F.gelu(plain + bias.float(), approximate="tanh"),
                        ),
                    }
                assert results["residual"][0] is some
                for name, (result, expected) in results.items():
                    assert result.dtype == dtype, name
                    torch.testing.assert_close(
                        result.float(), expected, atol=tolerance, rtol=tolerance, msg=name
                    )
        for width, depth in ((1, 40), (30, 64), (100, 72)):
            gate, up = (torch.randn(width, depth) / depth**0.5 for _ in range(2))
            gate_bias, up_bias, x = torch.randn(width), torch.randn(width), torch.randn(9, depth)
            both = interleave(gate, up).to(dtype)
            both_bias = interleave(gate_bias, up_bias).to(dtype)
            for activation, function in (
                ("silu", F.silu),
                ("gelu", F.gelu),
                ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
            ):
                for has_bias in (True, False):
                    with batch_invariant():
                        result = linear_gated(
                            x.to(dtype),
                            both,
                            both_bias if has_bias else None,
                            activation,  # type: ignore[arg-type]
                        )
                    expected = function(F.linear(x, gate, gate_bias if has_bias else None))
                    expected = expected * F.linear(x, up, up_bias if has_bias else None)
                    torch.testing.assert_close(
                        result.float(), expected, atol=5 * tolerance, rtol=5 * tolerance
                    )
    # Views are read as what they show.
    x, weight = torch.randn(40, 30).t(), torch.randn(20, 40)
    torch.testing.assert_close(
        invariant_linear(x, weight), F.linear(x, weight), atol=1e-4, rtol=1e-4
    )
    assert invariant_linear(torch.empty(0, 40), weight).shape == (0, 20)


def check_tiles() -> None:
    """The tile is the weight's own, and a device with little shared memory gets a smaller one."""
    assert choose_tile(4096, torch.bfloat16, 232448) != choose_tile(1024, torch.bfloat16, 232448)
    for shared in (101376, 166912, 232448):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for width in (1, 16, 17, 64, 65, 384, 1024, 3071, 3072, 30522):
                tile = choose_tile(width, dtype, shared)
                assert tile.shared_bytes(dtype.itemsize) <= shared
    tile = Tile(16, 16, 16, 4, 2)
    x, weight = torch.randn(50, 70), torch.randn(33, 70)
    torch.testing.assert_close(
        invariant_linear(x, weight, tile=tile), F.linear(x, weight), atol=1e-4, rtol=1e-4
    )


def check_bits_of_rows() -> None:
    """A row alone, among others, first or last: the same bits; and not so by accident of the data."""
    generator = random.Random(0)
    for width, depth in SHAPES:
        weight, bias = torch.randn(width, depth), torch.randn(width)
        x = torch.randn(20, depth)
        residual = torch.randn(20, width)
        alone = torch.cat(
            [
                invariant_linear(x[at : at + 1], weight, bias, residual=residual[at : at + 1])
                for at in range(20)
            ]
        )
        for rows in (2, 64, 65, 150):
            chosen = torch.tensor([generator.randrange(20) for _ in range(rows)])
            found = invariant_linear(x[chosen], weight, bias, residual=residual[chosen])
            assert torch.equal(found, alone[chosen]), (width, depth, rows)


def check_bits_of_means() -> None:
    sequences = [torch.randn(length, 40) for length in (1, 15, 17, 130, 300)]
    differing = 0
    for order in ([3], [0, 3], [1, 2, 3, 4], [4, 0, 1, 2, 3]):
        x = torch.cat([sequences[index] for index in order])
        lengths = torch.tensor([0] + [len(sequences[index]) for index in order])
        cu_seqlens = lengths.cumsum(0).to(torch.int32)
        with batch_invariant():
            means = mean_rows(x, cu_seqlens, normalize=False)
        others = mean_rows(x, cu_seqlens, normalize=False)
        torch.testing.assert_close(means, others, atol=1e-6, rtol=1e-5)
        for row, index in enumerate(order):
            alone = torch.tensor([0, len(sequences[index])], dtype=torch.int32)
            with batch_invariant():
                expected = mean_rows(sequences[index], alone, normalize=False)[0]
            assert torch.equal(means[row], expected)
            differing += not torch.equal(
                others[row], mean_rows(sequences[index], alone, normalize=False)[0]
            )
    assert differing, "the default splits by the batch: without that the check shows nothing"


class Watch(TorchDispatchMode):
    """Notes operations whose sums may go by the number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.paused = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if name in FORBIDDEN and not self.paused:
            self.found.add(name)
        return function(*args, **(kwargs or {}))


def _pooled_layers(weights: Any, width: int) -> tuple[Any, ...]:
    def layer(activation: str | None) -> linear_layers.Linear:
        return linear_layers.Linear(
            weights.take("dense", width, width).float(),
            weights.take("bias", width).float(),
            activation,
        )

    norm = LayerNorm(torch.ones(width), torch.zeros(width), 1e-5)
    return layer("tanh"), ResidualDense(layer("gelu"), layer(None)), PooledLayerNorm(norm)


@torch.no_grad()
def check_models() -> None:
    """No product of a family goes around the kernel, and no bit of its rows changes in company."""
    sizes = {
        "vocab_size": 50,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 130,
        "type_vocab_size": 1,
    }
    decoder = sizes | {"num_key_value_heads": 2, "head_dim": 8}
    windows = {"sliding_window": 8, "local_attention": 8, "sliding_window_pattern": 2}
    alibi = {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}

    def embedding(
        model_class: Any, values: dict[str, Any], mode: Any, dense: bool = False
    ) -> Callable[[Any], Any]:
        def build(weights: Any) -> EmbeddingModel:
            backbone = model_class(JsonObject("config.json", values), weights)
            layers = _pooled_layers(weights, 32) if dense else ()
            return EmbeddingModel(backbone, Pooling((mode,)), layers)

        return build

    def classifier(model_class: Any, values: dict[str, Any]) -> Callable[[Any], Any]:
        return lambda weights: model_class(JsonObject("config.json", values), weights, 3)

    families = {
        "bert": embedding(BertModel, sizes, "cls", dense=True),
        "xlm-roberta classifier": classifier(XLMRobertaForSequenceClassification, sizes),
        "modernbert classifier": classifier(ModernBertForSequenceClassification, sizes | windows),
        "nomic-bert": embedding(NomicBertModel, sizes, "last_token"),
        "jina-bert": embedding(JinaBertModel, sizes | alibi, "cls"),
        "qwen3": embedding(Qwen3Model, decoder, "last_token"),
        "qwen3 classifier": classifier(Qwen3ForSequenceClassification, decoder),
        "qwen3 reranker": lambda weights: CausalReranker(
            Qwen3Model, JsonObject("config.json", decoder), weights, 7, 4
        ),
        "gemma3": embedding(Gemma3Model, decoder | windows, "cls"),
    }
    generator = random.Random(1)
    sequences = [[generator.randrange(50) for _ in range(n)] for n in (1, 5, 5, 9, 20)]
    linear_layers._packs = lambda device, dtype: False  # weights as on CUDA
    # From so few tokens on the last layer computes one row of each sequence only.
    fused_encoder._ROW_CHOICE_MIN_TOKENS = llama._ROW_CHOICE_MIN_TOKENS = 48
    for name, build in families.items():
        model = build(RandomWeights(torch.float32, CPU))
        backbone = model.backbone
        if isinstance(backbone, BertModel):
            backbone.fused = fused_encoder.FusedEncoder(backbone)
        attention: Any = make_attention(
            "auto", backbone.attention_shape, torch.float32, CPU, deterministic=True
        )
        watch = Watch()
        for part in {attention, attention.local}:
            part.attend = _unwatched(watch, part.attend)

        def rows(
            chosen: list[list[int]],
            tokens: int,
            model: Any = model,
            attention: Any = attention,
            watch: Watch = watch,
        ) -> torch.Tensor:
            backbone = model.backbone
            layout = BatchLayout(
                (tokens,),
                (8,),
                token_types=backbone.token_types,
                position_offset=backbone.position_offset,
            )
            starts = [len(chosen)] * len(chosen) if backbone.token_types else None
            batch = ForwardBatch.from_sequences(chosen, layout, starts)
            with batch_invariant(), watch:
                attention.plan(batch)
                result: torch.Tensor = model(batch, attention)[: len(chosen)]
            return result

        alone = torch.cat([rows([sequence], 24) for sequence in sequences])
        assert alone.isfinite().all()
        assert (alone[0] - alone[1]).abs().max() > 1e-4, name
        for padded, order in ((32, [3, 2, 1]), (48, [2, 4, 1, 3, 0])):
            found = rows([sequences[index] for index in order], padded)
            assert torch.equal(found, alone[order]), (name, padded, order)
        assert not watch.found, (name, watch.found)


def _unwatched(watch: Watch, attend: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def wrapped(*heads: torch.Tensor) -> torch.Tensor:
        watch.paused = True
        try:
            return attend(*heads)
        finally:
            watch.paused = False

    return wrapped


if __name__ == "__main__":
    accept_new_numpy()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    launch.INTERPRETED = True
    check_linear()
    check_tiles()
    check_bits_of_rows()
    check_bits_of_means()
    check_models()
    print("all checks passed")
