"""Cross-encoders of sentence-transformers that are language models with a chat template."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rose._tulip import TextEncoder
from rose.checkpoint.chat_template import read_pair_template
from rose.checkpoint.json_object import JsonObject
from rose.config import EngineConfig, Templates
from rose.engine.engine import Engine
from rose.errors import ModelLoadError
from rose.forward_batch import ForwardBatch

CHAT_TEMPLATE = """\
{%- set system = messages | selectattr("role", "eq", "system") | map(attribute="content") | first \
| default("Find the answer") -%}
<|im_start|>system
Answer yes or no.<|im_end|>
<|im_start|>user
<Instruct>: {{ system }}
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first \
}}<|im_end|>
<|im_start|>assistant
<think>

</think>

"""
QUERY = "what is gravity?"
DOCUMENTS = ["Gravity attracts bodies.", "北京是中国的首都。", "", "The end.\n", "word " * 900]


@pytest.fixture(scope="module")
def reference(qwen3_reranker: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The directory that sentence-transformers saves, and its model."""
    from sentence_transformers import CrossEncoder

    source = tmp_path_factory.mktemp("source") / "model"
    shutil.copytree(qwen3_reranker, source)
    (source / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    directory = tmp_path_factory.mktemp("saved") / "cross-encoder"
    model = CrossEncoder(str(source), device="cpu", max_length=512)
    model.save_pretrained(str(directory))
    return directory, CrossEncoder(str(directory), device="cpu", max_length=512)


def test_scores_equal_sentence_transformers(reference: tuple[Path, Any]) -> None:
    directory, model = reference
    engine = Engine.load(directory, EngineConfig(device="cpu"))
    assert engine.info.task == "score"
    assert engine.info.templates.default_instruction == "Find the answer"
    encoder = TextEncoder(engine.info)
    for instruction in ("", "Find a recipe"):
        sequences = encoder.pairs(QUERY, DOCUMENTS, instruction)
        batch = ForwardBatch.from_sequences([ids for ids, _ in sequences], engine.info.layout)
        logits = engine.step(batch).numpy()[:, 0].astype(np.float64)
        ours = 1 / (1 + np.exp(-logits)) if engine.info.activation == "sigmoid" else logits
        expected = model.predict(
            [(QUERY, document) for document in DOCUMENTS], prompt=instruction or None
        )
        # The last one is too long: of it only the document may be cut.
        assert len(sequences[-1][0]) == engine.info.max_sequence_tokens == 512
        assert np.abs(ours - expected).max() <= 1e-5
        assert np.std(expected) > 1e-3


def test_rendered_with_its_places(tmp_path: Path) -> None:
    def read(source: str, **options: Any) -> Templates | None:
        (tmp_path / "chat_template.jinja").write_text(source)
        config = JsonObject("tokenizer_config.json", {"bos_token": "<s>"})
        return read_pair_template(tmp_path, config, JsonObject("options", options), None)

    flat = "{{ bos_token }}{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
    assert read(flat) is None  # No such roles: a chat, not a pair.
    named = flat.replace("{% for", "{# query document #}{% for")
    # Without an instruction there is no place for one, not a place with nothing in it.
    expected = "<s>{if instruction}system={instruction};{end}query={query};document={document};"
    assert read(named) == Templates(pair=expected)
    bare = "{# query document #}{% for m in messages %}{{ m.content }}\n{% endfor %}"
    lines = "{if instruction}{instruction}\n{end}{query}\n{document}\n"
    assert read(bare) == Templates(pair=lines)
    twice = named + "{{ messages | length }}"
    assert read(twice) == Templates(pair="<s>query={query};document={document};2")
    always = '{{ (messages | selectattr("role", "eq", "system") | list + [{}]) [0].content }};'
    empty = read(
        "{# query document #}" + always + flat.replace("m in messages", "m in messages[-2:]")
    )
    assert empty is not None
    assert empty.pair.startswith("{instruction};<s>query=")
    assert empty.default_instruction == ""
    structured = named.replace("m.content", "m.content[0].text")
    assert read(structured) == Templates(pair=expected)
    mode = "{# query document #}{{ mode }}" + flat
    found = read(mode, processing_kwargs={"chat_template": {"mode": "score:"}})
    assert found is not None
    assert found.pair.startswith("score:<s>")
    with pytest.raises(ModelLoadError, match="chat template: no pairs"):
        read("{{ raise_exception('no pairs') }} query document")
    with pytest.raises(ModelLoadError, match="chat template"):
        read("query document {{ ''.__class__.__mro__ }}")
