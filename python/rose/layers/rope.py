"""Rotary tables as configurations describe them: base, and how frequencies are scaled."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError
from rose.kernels.rope import RopeTable, rope_frequencies


class RopeConfig:
    """What config.json says about rotary positions of one kind of layer.

    `rope_parameters` is today's name, `rope_scaling` with `rope_theta` beside it the older one;
    `layer_type` selects one where `rope_parameters` holds several.

    Raises:
        ModelLoadError: the kind of scaling is not supported, or a field is missing.
    """

    def __init__(
        self,
        config: JsonObject,
        default_theta: float,
        *,
        layer_type: str | None = None,
        theta_field: str = "rope_theta",
        scaled: bool = True,
    ) -> None:
        scaling = config.child("rope_scaling" if config.has("rope_scaling") else "rope_parameters")
        if layer_type is not None and scaling.has(layer_type):
            scaling = scaling.child(layer_type)
        elif not scaled:
            # The model's one scaling is meant for its other kind of layer.
            scaling = JsonObject(scaling.label, {})
        self.scaling = scaling
        self.kind = scaling.string("rope_type", scaling.string("type", "default"))
        if self.kind not in _SCALINGS:
            raise ModelLoadError(
                f"{scaling.label}: rope_type {self.kind!r} is not supported; "
                f"supported are {', '.join(_SCALINGS)}"
            )
        for place in (scaling, config):
            if place.number("partial_rotary_factor", 1.0) != 1.0:
                raise ModelLoadError(
                    f"{place.label}: partial_rotary_factor must be 1, "
                    f"got {place.number('partial_rotary_factor')}"
                )
        self.theta = scaling.number("rope_theta", config.number(theta_field, default_theta))

    def num_positions(self, max_position_embeddings: int) -> int:
        """Longest sequence: YaRN stretches what the model was trained with."""
        if self.kind != "yarn":
            return max_position_embeddings
        original = self.scaling.integer("original_max_position_embeddings", max_position_embeddings)
        return max(max_position_embeddings, int(original * self.scaling.number("factor", 1.0)))

    def table(self, max_position_embeddings: int, head_dim: int, device: torch.device) -> RopeTable:
        """Cosines and sines of all positions."""
        frequencies, attention_factor = _SCALINGS[self.kind](
            self, head_dim, max_position_embeddings
        )
        return RopeTable.from_frequencies(
            self.num_positions(max_position_embeddings), frequencies, device, attention_factor
        )


Scaled = tuple[torch.Tensor, float]


def _plain(rope: RopeConfig, head_dim: int, _max_positions: int) -> Scaled:
    # NTK scaling by length ("dynamic") begins behind max_position_embeddings, which no sequence passes.
    return rope_frequencies(head_dim, rope.theta), 1.0


def _linear(rope: RopeConfig, head_dim: int, _max_positions: int) -> Scaled:
    return rope_frequencies(head_dim, rope.theta) / rope.scaling.number("factor"), 1.0


def _ntk(rope: RopeConfig, head_dim: int, _max_positions: int) -> Scaled:
    """A larger base, and the lowest frequency divided by the factor (GTE)."""
    factor = rope.scaling.number("factor")
    if rope.scaling.has("mixed_b"):
        raise ModelLoadError(f"{rope.scaling.label}: mixed_b is not supported")
    return rope_frequencies(head_dim, rope.theta * factor) / factor ** (2 / head_dim), 1.0


def _llama3(rope: RopeConfig, head_dim: int, max_positions: int) -> Scaled:
    """Long waves are stretched, short ones kept, those between interpolated."""
    scaling = rope.scaling
    frequencies = rope_frequencies(head_dim, rope.theta)
    low, high = scaling.number("low_freq_factor"), scaling.number("high_freq_factor")
    original = scaling.integer("original_max_position_embeddings", max_positions)
    rotations = original * frequencies / (2 * math.pi)
    kept = ((rotations - low) / (high - low)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / scaling.number("factor")), 1.0


def _yarn(rope: RopeConfig, head_dim: int, max_positions: int) -> Scaled:
    """YaRN (Peng et al., 2023): interpolation by rotations, and warmer attention."""
    scaling = rope.scaling
    original = scaling.integer("original_max_position_embeddings", max_positions)
    factor = scaling.number("factor", max_positions / original)
    frequencies = rope_frequencies(head_dim, rope.theta)

    def dimension(rotations: float) -> float:
        return (
            head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))
        )

    first, last = (
        dimension(scaling.number("beta_fast", 32)),
        dimension(scaling.number("beta_slow", 1)),
    )
    if scaling.boolean("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    width = last - first if last != first else 0.001
    interpolated = ((torch.arange(head_dim // 2, dtype=torch.float32) - first) / width).clamp(0, 1)
    return frequencies * (1 - interpolated + interpolated / factor), _yarn_factor(scaling, factor)


def _yarn_factor(scaling: JsonObject, factor: float) -> float:
    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    default = mscale(1.0)
    if scaling.number("mscale", 0.0) and scaling.number("mscale_all_dim", 0.0):
        default = mscale(scaling.number("mscale")) / mscale(scaling.number("mscale_all_dim"))
    return scaling.number("attention_factor", default)


_SCALINGS: dict[str, Callable[[RopeConfig, int, int], Scaled]] = {
    "default": _plain,
    "dynamic": _plain,
    "linear": _linear,
    "ntk": _ntk,
    "llama3": _llama3,
    "yarn": _yarn,
}
