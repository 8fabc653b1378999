"""Compiled FlashInfer kernels: where they are, and how to have one built without waiting for it.

FlashInfer compiles a kernel for each dtype and head size on first use, 25 to 100 s with nvcc. A
server must never wait for that, so kernels are only ever loaded from where a build left them: the
package itself, the package of prebuilt kernels, or the user's cache. Only the shared object and
`tvm_ffi` are needed; the Python package of FlashInfer is not imported.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch

logger = logging.getLogger(__name__)

_DTYPE_NAMES = {torch.bfloat16: "bf16", torch.float16: "f16"}

_BUILD_SCRIPT = """
import sys, torch
from flashinfer.jit.attention import gen_batch_prefill_module
dtype = getattr(torch, sys.argv[1])
head_dim = int(sys.argv[2])
gen_batch_prefill_module(
    "fa3", dtype, dtype, dtype, torch.int32, head_dim, head_dim, 0, False, False, False
).build_and_load()
"""


def fa3_module_name(dtype: torch.dtype, head_dim: int) -> str:
    """FlashInfer's name of ragged FlashAttention 3 prefill without window or soft cap."""
    name = _DTYPE_NAMES[dtype]
    return (
        f"batch_prefill_with_kv_cache_dtype_q_{name}_dtype_kv_{name}_dtype_o_{name}_dtype_idx_i32_"
        f"head_dim_qk_{head_dim}_head_dim_vo_{head_dim}_posenc_0_use_swa_False_"
        "use_logits_cap_False_f16qk_False_sm90"
    )


def find_module(name: str) -> Path | None:
    """The shared object of a kernel, if one has been built."""
    for directory in _module_directories():
        path = directory / name / f"{name}.so"
        if path.is_file():
            return path
    return None


def can_load_modules() -> bool:
    """Whether the library that loads the shared objects is installed."""
    return find_spec("tvm_ffi") is not None


def build_in_background(
    dtype: torch.dtype, head_dim: int, when_built: Callable[[Path], None]
) -> bool:
    """Starts a compilation in a process of its own; `when_built` runs on a thread.

    Returns:
        False where FlashInfer is not installed, so that there is nothing to build from.
    """
    if find_spec("flashinfer") is None:
        return False
    name = fa3_module_name(dtype, head_dim)

    def build() -> None:
        dtype_name = str(dtype).removeprefix("torch.")
        finished = subprocess.run(
            [sys.executable, "-c", _BUILD_SCRIPT, dtype_name, str(head_dim)],
            capture_output=True,
            text=True,
            check=False,
            # The server's own compilations must not starve its threads.
            env={**os.environ, "MAX_JOBS": os.environ.get("MAX_JOBS", "4")},
        )
        path = find_module(name)
        if finished.returncode != 0 or path is None:
            reason = (finished.stderr.strip().splitlines() or ["no output"])[-1]
            logger.warning("flashinfer: building %s failed: %s", name, reason)
            return
        when_built(path)

    threading.Thread(target=build, name="flashinfer-build", daemon=True).start()
    return True


def _module_directories() -> list[Path]:
    directories = []
    for package, below in (("flashinfer", "data/aot"), ("flashinfer_jit_cache", "jit_cache")):
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            directories.append(Path(next(iter(spec.submodule_search_locations))) / below)
    base = Path(os.environ.get("FLASHINFER_WORKSPACE_BASE", Path.home()))
    # .cache/flashinfer/VERSION/ARCHITECTURE/cached_ops, newest version first.
    directories += sorted(base.glob(".cache/flashinfer/*/*/cached_ops"), reverse=True)
    return directories
