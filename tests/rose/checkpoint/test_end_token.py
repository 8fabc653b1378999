"""`add_eos_token`: a model that reads the last token gets the one that its card puts there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from rose._tulip import TextEncoder
from rose.checkpoint.end_token import read_end_token, with_end_token
from rose.checkpoint.json_object import JsonObject
from rose.cli import app
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch

START, END = 256, 257
BYTES = processors.ByteLevel(trim_offsets=False)
BEGINS = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", START)])
ENDS = processors.TemplateProcessing("$A </s>", "$A $B:1 </s>:1", [("</s>", END)])
BERT = processors.BertProcessing(("</s>", END), ("<s>", START))


def tokenizer(processor: Any) -> Tokenizer:
    vocabulary = {
        character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<s>", "</s>"])
    if processor is not None:
        made.post_processor = processor
    return made


@pytest.mark.parametrize(
    ("processor", "before", "pair"),
    [
        (None, [], "A E B E"),
        (BYTES, [], "A E B E"),
        (BEGINS, [START], "S A E S B E"),
        (processors.Sequence([BYTES, BEGINS]), [START], "S A E S B E"),
    ],
)
def test_behind_every_text(processor: Any, before: list[int], pair: str) -> None:
    plain = tokenizer(processor)
    ended = Tokenizer.from_str(with_end_token(plain.to_str().encode(), "</s>").decode())
    body = plain.encode("hi.", add_special_tokens=False).ids
    for text, ids in (("hi.", body), ("", [])):
        assert ended.encode(text).ids == [*before, *ids, END]
    parts = {"A": body, "B": body, "S": [START], "E": [END]}
    found = ended.encode("hi.", "hi.")
    assert found.ids == [one for part in pair.split() for one in parts[part]]
    assert found.type_ids == sorted(found.type_ids)


@pytest.mark.parametrize("processor", [ENDS, BERT, processors.Sequence([BYTES, ENDS])])
def test_not_twice(processor: Any) -> None:
    found = tokenizer(processor).to_str().encode()
    assert with_end_token(found, "</s>") == found


def test_what_the_configuration_says() -> None:
    def read(**values: Any) -> str | None:
        return read_end_token(JsonObject("tokenizer_config.json", values))

    assert read(eos_token="</s>") is None
    assert read(eos_token="</s>", add_eos_token=False) is None
    assert read(eos_token="</s>", add_eos_token=True) == "</s>"
    assert read(eos_token={"content": "</s>"}, add_eos_token=True) == "</s>"
    with pytest.raises(ModelLoadError, match=r"field 'eos_token' must be a token"):
        read(add_eos_token=True)
    with pytest.raises(ModelLoadError, match="no token '<end>', which add_eos_token asks for"):
        with_end_token(tokenizer(BEGINS).to_str().encode(), "<end>")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As e5-mistral: the file has no end token, its configuration asks for one."""
    from transformers import MistralConfig, MistralModel

    made = tmp_path_factory.mktemp("model") / "e5-mistral-tiny"
    config = MistralConfig(
        vocab_size=258,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    torch.manual_seed(5)
    MistralModel(config).eval().save_pretrained(made)
    tokenizer(BEGINS).save(str(made / "tokenizer.json"))
    written = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": True,
        "add_eos_token": True,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "</s>",
    }
    (made / "tokenizer_config.json").write_text(json.dumps(written))
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    modules = [Transformer(str(made)), Pooling(32, "lasttoken"), Normalize()]
    saved = made.with_name("saved") / "e5-mistral-tiny"
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(saved))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (saved / name).write_bytes((made / name).read_bytes())
    return saved


def test_vectors_as_the_card_makes_them(directory: Path) -> None:
    from transformers import MistralModel

    engine = Engine.load(directory, EngineConfig(device="cpu", template="none"))
    plain = Tokenizer.from_file(str(directory / "tokenizer.json"))
    model = MistralModel.from_pretrained(directory, dtype=torch.float32).eval()
    texts = ["what is gravity?", "", "long " * 40]
    sequences = TextEncoder(engine.info).singles(texts, "")
    batch = ForwardBatch.from_sequences([ids for ids, _ in sequences], engine.info.layout)
    found = engine.step(batch).numpy()
    for row, (ids, _), text in zip(found, sequences, texts, strict=True):
        # The card cuts one token earlier, then puts the end token behind.
        assert ids == [*plain.encode(text).ids[: 64 - 1], END]
        with torch.inference_mode():
            last = model(torch.tensor([ids])).last_hidden_state[0, -1]
        assert np.abs(row - torch.nn.functional.normalize(last, dim=0).numpy()).max() <= 1e-5


def test_other_poolings_are_left_as_they_are(directory: Path) -> None:
    given = (directory / "tokenizer.json").read_bytes()
    mean = Engine.load(directory, EngineConfig(device="cpu", pooling="mean")).info
    last = Engine.load(directory, EngineConfig(device="cpu")).info
    assert mean.tokenizer_json == given
    assert last.tokenizer_json != given


def test_rose_check_puts_it_into_the_reference(directory: Path) -> None:
    arguments = ["check", str(directory), "--device", "cpu", "--template", "none"]
    assert app(arguments, standalone_mode=False) == 0
