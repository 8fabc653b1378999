"""One case of the parity tests: what is made, and how a table calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Task = Literal["embed", "score"]


@dataclass(frozen=True)
class Case:
    name: str
    model: str
    """transformers' class, by whose `config_class` the configuration is made."""
    config: dict[str, Any]
    tokenizer: str = "wordpiece"
    task: Task = "embed"
    pooling: str | list[str] = "mean"
    dense: tuple[int, ...] = ()
    """Widths of Dense modules."""
    modules: str = ""
    """`logit_score`: a causal language model with a LogitScore module."""
    published: Callable[[Path], None] | None = None
    """Rewrites the directory as the family's own code wrote it, after the reference has loaded."""
    transformers_names: bool = False
    """Tensors under transformers' names, where those are not the ones it saves."""

    @property
    def head(self) -> str:
        if self.modules:
            return "LogitScore"
        if self.task == "score":
            return f"{self.config.get('num_labels', 2)} labels"
        pooling = self.pooling if isinstance(self.pooling, str) else "+".join(self.pooling)
        return pooling + "".join(f", dense {width}" for width in self.dense) + ", normalized"

    @property
    def summary(self) -> str:
        hidden = self.config.get("hidden_size", self.config.get("dim"))
        layers = self.config.get("num_hidden_layers", self.config.get("n_layers"))
        more = [
            f"{name} {value}"
            for name, value in self.config.items()
            if name in ("local_attention", "sliding_window", "is_causal", "hidden_activation")
        ]
        rope = self.config.get("rope_parameters", {}).get("rope_type")
        return ", ".join([f"{layers} × {hidden}", *more, *([f"rope {rope}"] if rope else [])])
