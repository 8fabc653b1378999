"""ROSE: reranking and embedding engine, with the Tulip server inside.

Importing this package is cheap: torch and grpc are loaded with the first name that needs them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rose.client import AsyncClient as AsyncClient
    from rose.client import Client as Client
    from rose.config import BatchLayout as BatchLayout
    from rose.config import EngineConfig as EngineConfig
    from rose.config import ModelInfo as ModelInfo
    from rose.engine.engine import Engine as Engine
    from rose.errors import BatchError as BatchError
    from rose.errors import ConfigError as ConfigError
    from rose.errors import ModelLoadError as ModelLoadError
    from rose.errors import RoseError as RoseError
    from rose.forward_batch import ForwardBatch as ForwardBatch
    from rose.lazy_tensor import LazyTensor as LazyTensor

try:
    __version__ = version("rose-serving")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0.0.0+source"

_MODULES = {
    "AsyncClient": "rose.client",
    "BatchError": "rose.errors",
    "BatchLayout": "rose.config",
    "Client": "rose.client",
    "ConfigError": "rose.errors",
    "Engine": "rose.engine.engine",
    "EngineConfig": "rose.config",
    "ForwardBatch": "rose.forward_batch",
    "LazyTensor": "rose.lazy_tensor",
    "ModelInfo": "rose.config",
    "ModelLoadError": "rose.errors",
    "RoseError": "rose.errors",
}

__all__ = [
    "AsyncClient",
    "BatchError",
    "BatchLayout",
    "Client",
    "ConfigError",
    "Engine",
    "EngineConfig",
    "ForwardBatch",
    "LazyTensor",
    "ModelInfo",
    "ModelLoadError",
    "RoseError",
    "__version__",
]


def __getattr__(name: str) -> object:
    module_name = _MODULES.get(name)
    if module_name is None:
        raise AttributeError(f"module 'rose' has no attribute {name!r}")
    value = getattr(import_module(module_name), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
