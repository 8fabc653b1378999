"""Random tensors in the place of a checkpoint: for benchmarks and tests of real shapes."""

from __future__ import annotations

import torch


class RandomWeights:
    """A `WeightSource` that makes every tensor up, the same ones for the same seed.

    `absent` lists names that `has` denies, such as a prefix of another layout.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        device: torch.device,
        seed: int = 0,
        absent: tuple[str, ...] = (),
    ) -> None:
        self.dtype = dtype
        self.device = device
        self._generator = torch.Generator(device).manual_seed(seed)
        self._absent = absent

    def has(self, name: str) -> bool:
        """True, unless the name is among the absent ones."""
        return name not in self._absent

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """Normal numbers of a trained model's order of size; norm weights are around one."""
        values = torch.randn(shape, generator=self._generator, device=self.device) * 0.02
        if len(shape) == 1 and name.endswith("weight"):
            values += 1
        return values.to(self.dtype)
