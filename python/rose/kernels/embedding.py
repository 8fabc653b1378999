"""Embedding look-up with the norm behind it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rose.forward_batch import ForwardBatch
from rose.kernels.launch import launch, row_block, uses_triton, warps_for
from rose.kernels.norm import rms_norm


def embedding_layer_norm(
    batch: ForwardBatch,
    words: torch.Tensor,
    offsets: torch.Tensor,
    num_positions: int,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """LayerNorm(word + offset), and which rows are bad.

    Args:
        batch: token ids, positions and perhaps token types.
        words: [vocabulary, width].
        offsets: [token types * num_positions, width], the sums of position and token type.
        num_positions: rows of `offsets` for one token type.
        weight: [width].
        bias: [width].
        eps: added to the variance.

    Returns:
        [tokens, width] of the words' dtype, and `bad_rows` [tokens] int32.
    """
    tokens, width = batch.padded_tokens, words.shape[1]
    types = batch.token_type_ids
    if uses_triton(words):
        from rose.kernels.triton_kernels.embedding import embedding_layer_norm_kernel

        out = torch.empty(tokens, width, dtype=words.dtype, device=words.device)
        bad_rows = torch.empty(tokens, dtype=torch.int32, device=words.device)
        block = row_block(width)
        launch(
            embedding_layer_norm_kernel,
            (tokens,),
            batch.token_ids,
            batch.positions,
            batch.positions if types is None else types,
            words,
            offsets,
            weight,
            bias,
            out,
            bad_rows,
            eps,
            width=width,
            block=block,
            num_positions=num_positions,
            has_token_types=types is not None,
            num_warps=warps_for(block),
            dependent_rows=tokens,
        )
        return out, bad_rows
    index = batch.positions if types is None else batch.positions + types * num_positions
    total = F.embedding(batch.token_ids, words).float() + F.embedding(index, offsets).float()
    finite = total.isfinite().all(1, keepdim=True)
    normed = F.layer_norm(total, (width,), weight.float(), bias.float(), eps)
    out = torch.where(finite, normed, 0.0).to(words.dtype)
    return out, (~finite[:, 0]).to(torch.int32)


def embedding_rms_norm(
    batch: ForwardBatch, words: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The words themselves, RMSNorm(word), and which rows are bad.

    Returns:
        `residual` [tokens, width], `normed` [tokens, width], `bad_rows` [tokens] int32.
    """
    tokens, width = batch.padded_tokens, words.shape[1]
    if uses_triton(words):
        from rose.kernels.triton_kernels.embedding import embedding_rms_norm_kernel

        residual = torch.empty(tokens, width, dtype=words.dtype, device=words.device)
        out = torch.empty_like(residual)
        bad_rows = torch.empty(tokens, dtype=torch.int32, device=words.device)
        block = row_block(width)
        launch(
            embedding_rms_norm_kernel,
            (tokens,),
            batch.token_ids,
            words,
            weight,
            residual,
            out,
            bad_rows,
            eps,
            width=width,
            block=block,
            num_warps=warps_for(block),
            dependent_rows=tokens,
        )
        return residual, out, bad_rows
    residual = F.embedding(batch.token_ids, words)
    finite = residual.isfinite().all(1, keepdim=True)
    residual = torch.where(finite, residual, 0.0)
    return residual, rms_norm(residual, weight, eps), (~finite[:, 0]).to(torch.int32)
