"""Tensors of a checkpoint: safetensors files, memory-mapped, each tensor checked when taken."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol, cast

import torch
from safetensors import SafetensorError, safe_open

from rose.checkpoint.json_object import JsonObject
from rose.errors import ModelLoadError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
_DTYPES = {"F64", "F32", "F16", "BF16"}
# TensorFlow's names of LayerNorm parameters, still found in old BERT checkpoints.
_OLD_NAMES = {
    "LayerNorm.weight": "LayerNorm.gamma",
    "LayerNorm.bias": "LayerNorm.beta",
}
_ADAPTER = re.compile(r"(^|\.)(lora_[AB]|lora_embedding_[AB])(\.|$)")
_NAMES_SHOWN = 5


class _Slice(Protocol):
    def get_shape(self) -> list[int]: ...

    def get_dtype(self) -> str: ...


class _SafetensorsFile(Protocol):
    """The part of `safe_open` that is used; tensors it returns keep its mapping alive."""

    def keys(self) -> list[str]: ...

    def get_slice(self, name: str) -> _Slice: ...

    def get_tensor(self, name: str) -> torch.Tensor: ...


class SafetensorsWeights:
    """A `WeightSource` over the safetensors files of one directory."""

    def __init__(self, directory: Path, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self.device = device
        self.directory = directory
        self.files = weight_files(directory)
        self._handles = {path.name: _open(path) for path in self.files}
        self._file_of: dict[str, str] = {}
        for file_name, handle in self._handles.items():
            for name in handle.keys():  # noqa: SIM118 - safe_open is not a mapping
                if name in self._file_of:
                    raise ModelLoadError(
                        f"{file_name}: tensor {name!r} is also in {self._file_of[name]}"
                    )
                self._file_of[name] = file_name
        self._refuse_adapters()
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return self._stored_name(name) in self._file_of

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor called `name`, in the engine's dtype and on its device.

        Raises:
            ModelLoadError: it is missing, has another shape, or is not of a floating-point type.
        """
        stored = self._stored_name(name)
        file_name = self._file_of.get(stored)
        if file_name is None:
            raise ModelLoadError(
                f"{self._where()}: tensor {name!r} is missing; the file has {self._some_names()}"
            )
        handle = self._handles[file_name]
        view = handle.get_slice(stored)
        found, dtype = tuple(view.get_shape()), view.get_dtype()
        if found != shape:
            raise ModelLoadError(
                f"{file_name}: tensor {stored!r} has shape {list(found)}, "
                f"config.json asks for {list(shape)}"
            )
        if dtype not in _DTYPES:
            raise ModelLoadError(
                f"{file_name}: tensor {stored!r} has dtype {dtype}; "
                f"supported are {', '.join(sorted(_DTYPES))}"
            )
        self._taken.add(stored)
        return handle.get_tensor(stored).to(device=self.device, dtype=self.dtype)

    def check_all_taken(self, unused: tuple[str, ...]) -> None:
        """Refuses tensors that the model did not take, except names that match `unused`.

        A tensor too many means that config.json describes another model than the weights.

        Raises:
            ModelLoadError: names a few of them.
        """
        extra = sorted(
            name
            for name in self._file_of.keys() - self._taken
            if not any(fnmatchcase(name, pattern) for pattern in unused)
        )
        if extra:
            raise ModelLoadError(
                f"{self._where()}: {len(extra)} tensors do not belong to this architecture: "
                f"{_shown(extra)}"
            )

    def _refuse_adapters(self) -> None:
        adapters = sorted(name for name in self._file_of if _ADAPTER.search(name))
        if adapters:
            raise ModelLoadError(
                f"{self._where()}: low-rank adapters are not merged into the weights: "
                f"{_shown(adapters)}. Merge them once and save the whole model"
            )

    def _stored_name(self, name: str) -> str:
        if name in self._file_of:
            return name
        for new, old in _OLD_NAMES.items():
            if name.endswith(new):
                return name.removesuffix(new) + old
        return name

    def _where(self) -> str:
        return self.files[0].name if len(self.files) == 1 else INDEX_FILE

    def _some_names(self) -> str:
        return _shown(sorted(self._file_of)) if self._file_of else "no tensors"


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory: one, or the shards that its index names.

    Raises:
        ModelLoadError: there are none, or a shard is missing.
    """
    index = directory / INDEX_FILE
    if (directory / SINGLE_FILE).is_file():
        return [directory / SINGLE_FILE]
    if index.is_file():
        shards = JsonObject.read(index).child("weight_map").values.values()
        names = sorted({str(name) for name in shards})
        for name in names:
            # An index could name files outside of the directory.
            if Path(name).name != name or not (directory / name).is_file():
                raise ModelLoadError(f"{INDEX_FILE} names {name!r}, which is not in {directory}")
        if names:
            return [directory / name for name in names]
        raise ModelLoadError(f"{INDEX_FILE}: weight_map is empty")
    pickles = sorted(path.name for pattern in _PICKLES for path in directory.glob(pattern))
    if pickles:
        raise ModelLoadError(
            f"{directory} has no {SINGLE_FILE}, only {_shown(pickles)}: pickle files can run code "
            "when they are read and are not loaded. Convert once where you trust "
            "them: AutoModel.from_pretrained(DIRECTORY).save_pretrained(OUT) of transformers "
            "writes safetensors"
        )
    raise ModelLoadError(f"{directory} has no {SINGLE_FILE} and no {INDEX_FILE}")


def _open(path: Path) -> _SafetensorsFile:
    try:
        opened = cast("_SafetensorsFile", safe_open(path, framework="pt", device="cpu"))
        opened.keys()
        return opened
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size if path.exists() else 0
        raise ModelLoadError(
            f"{path.name} is not a usable safetensors file ({size} bytes): {error}"
        ) from error


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
