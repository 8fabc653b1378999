"""Compiled FlashInfer kernels: where they are, and how to have one built without waiting for it.

FlashInfer compiles a kernel for each dtype and head size on first use, 25 to 100 s with nvcc. A
server must never wait for that, so kernels are only ever loaded from where a build left them: the
package itself, the package of prebuilt kernels, or the user's cache. Only the shared object and
`tvm_ffi` are needed; the Python package of FlashInfer is not imported.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import torch

from rose.errors import KernelBuildError

logger = logging.getLogger(__name__)

_DTYPE_NAMES = {torch.bfloat16: "bf16", torch.float16: "f16"}

# Packages with prebuilt kernels for some architectures register here.
_PROVIDERS = "flashinfer.jit_cache.providers"
_ARCHITECTURE = "90a"
_BACKGROUND_JOBS = 4
PROGRESS_SECONDS = 15.0

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


def can_build_modules() -> bool:
    """Whether FlashInfer is installed, whose sources the kernels are compiled from."""
    return find_spec("flashinfer") is not None


def build_module(
    dtype: torch.dtype,
    head_dim: int,
    *,
    jobs: int | None = None,
    still_building: Callable[[float], None] | None = None,
) -> Path:
    """Compiles a kernel in a process of its own, waits for it, and says where it is.

    Args:
        dtype: bfloat16 or float16.
        head_dim: size of a head.
        jobs: most compilers at once where `MAX_JOBS` does not say; None leaves it to FlashInfer.
        still_building: called with the seconds so far, every `PROGRESS_SECONDS`.

    Raises:
        KernelBuildError: the compiler is missing or failed; with the last line that it wrote.
    """
    name = fa3_module_name(dtype, head_dim)
    environment = dict(os.environ)
    if jobs is not None:
        environment.setdefault("MAX_JOBS", str(jobs))
    command = [
        sys.executable,
        "-c",
        _BUILD_SCRIPT,
        str(dtype).removeprefix("torch."),
        str(head_dim),
    ]
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        while True:
            try:
                _, errors = process.communicate(timeout=PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if still_building is not None:
                    still_building(time.monotonic() - started)
    except BaseException:
        process.kill()
        process.wait()
        raise
    path = find_module(name)
    if process.returncode != 0 or path is None:
        reason = (errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        raise KernelBuildError(f"flashinfer: building {name} failed: {reason}")
    return path


def build_in_background(
    dtype: torch.dtype, head_dim: int, when_built: Callable[[Path], None]
) -> bool:
    """Starts a compilation in a process of its own; `when_built` runs on a thread.

    Returns:
        False where FlashInfer is not installed, so that there is nothing to build from.
    """
    if not can_build_modules():
        return False

    def build() -> None:
        try:
            # The server's own compilations must not starve its threads.
            path = build_module(dtype, head_dim, jobs=_BACKGROUND_JOBS)
        except (KernelBuildError, OSError) as error:
            logger.warning("%s", error)
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
    directories += _provider_directories()
    base = Path(os.environ.get("FLASHINFER_WORKSPACE_BASE", Path.home()))
    # .cache/flashinfer/VERSION/ARCHITECTURE/cached_ops, newest version first.
    caches = base.glob(".cache/flashinfer/*/*/cached_ops")
    return directories + sorted(caches, key=_version_of_cache, reverse=True)


def _provider_directories() -> Iterator[Path]:
    """Of the packages to which flashinfer-jit-cache has split: one for a set of architectures."""
    for entry_point in entry_points(group=_PROVIDERS):
        try:
            manifest = entry_point.load()()
            directory = Path(manifest["jit_cache_dir"])
            architectures = [str(name).lower() for name in manifest["cuda_architectures"]]
        except Exception as error:  # code of another package
            logger.warning("flashinfer: the kernels of %s cannot be used: %s", entry_point, error)
            continue
        # Spelled sm90a, compute_90a or 9.0a.
        if any(name.replace(".", "").endswith(_ARCHITECTURE) for name in architectures):
            yield directory


def _version_of_cache(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parts[-3])]
