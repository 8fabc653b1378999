"""Set-ups that are wrong on purpose are found by golden scores; right ones pass."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rose.checkpoint.answers import find_answer_tokens
from rose.checkpoint.checkpoint import read_checkpoint
from rose.checks.comparison import make_golden
from rose.checks.golden import GOLDEN_FILE, Golden
from rose.checks.reference import load_reference
from rose.checks.scorer import Scorer
from rose.checks.self_check import SelfCheck, check_golden, run_self_check
from rose.config import EngineConfig
from rose.engine.engine import Engine
from rose.errors import ModelLoadError, SelfCheckError

TOKENIZER = Path(__file__).parents[3] / "models" / "qwen3-tokenizer"


def load(directory: Path, **options: Any) -> Engine:
    return Engine.load(directory, EngineConfig(device="cpu", **options))


def with_golden(directory: Path, **options: Any) -> Path:
    """Writes what the reference gives for the directory as it is."""
    info = load(directory, **options).info
    config = EngineConfig(device="cpu", **options)
    answers = find_answer_tokens(read_checkpoint(directory), info.name, config)
    reference = load_reference(directory, info, answers)
    make_golden(reference, embeds=info.task == "embed").write(directory / GOLDEN_FILE)
    return directory


def check(directory: Path, **options: Any) -> SelfCheck:
    golden = Golden.read(directory / GOLDEN_FILE)
    return check_golden(Scorer(load(directory, **options)), golden)


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.fixture(scope="module")
def classifier(make_bert: Callable[..., Path]) -> Path:
    return with_golden(make_bert("two-labels", labels=2))


@pytest.fixture(scope="module")
def embedder(make_bert: Callable[..., Path]) -> Path:
    return with_golden(make_bert("embedder"))


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with the real Qwen3 tokenizer, whose scores spread."""
    if not (TOKENIZER / "tokenizer.json").is_file():
        pytest.skip("models/qwen3-tokenizer is not there: run scripts/fetch_models.py")
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    directory = tmp_path_factory.mktemp("model") / "Qwen3-Reranker-tiny"
    config = Qwen3Config(
        vocab_size=151669,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=64,
        max_position_embeddings=2048,
        initializer_range=0.3,
    )
    torch.manual_seed(4)
    Qwen3ForCausalLM(config).eval().save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, directory)
    return with_golden(directory)


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda directory: Path(shutil.copytree(directory, tmp_path / directory.name))


def test_right_ones_pass(classifier: Path, embedder: Path, reranker: Path) -> None:
    for directory in (classifier, embedder, reranker):
        found = check(directory)
        assert found.verdict == "ok", found
        assert found.num_scores == 40
    assert check(embedder).num_vectors == 20
    assert check(embedder, dtype="bfloat16").verdict == "ok"


def test_label_order_reversed(classifier: Path, copy: Callable[[Path], Path]) -> None:
    directory = copy(classifier)
    # A label that means relevant is looked for by name.
    edit(directory / "config.json", lambda c: c.update(id2label={"0": "yes", "1": "no"}))
    found = check(directory)
    assert found.verdict == "fail"
    assert found.rank_correlation < 0


def test_yes_and_no_swapped(reranker: Path, copy: Callable[[Path], Path]) -> None:
    directory = copy(reranker)

    def swap(tokenizer: dict[str, Any]) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["yes"], vocabulary["no"] = vocabulary["no"], vocabulary["yes"]

    engine = load(directory)
    edit(directory / "tokenizer.json", swap)
    swapped = load(directory)
    # The tokens of the prompt stay those of the real tokenizer: only the answers are mixed up.
    engine.model, engine.runner = swapped.model, swapped.runner
    found = check_golden(Scorer(engine), Golden.read(directory / GOLDEN_FILE))
    assert found.verdict == "fail"
    assert found.rank_correlation < 0


def test_template_missing(reranker: Path) -> None:
    assert check(reranker, template="none").verdict == "fail"
    # The other published layout of the same lines.
    pair = load(reranker).info.templates.pair
    other = pair.replace("\n<Query>", "\n\n<Query>").replace("\n<Document>", "\n\n<Document>")
    assert check(reranker, pair_template=other).verdict == "fail"


def test_pooling_wrong(embedder: Path) -> None:
    assert check(embedder, pooling="cls").verdict == "fail"
    assert check(embedder, pooling="max").verdict == "fail"


def test_normalization_wrong(embedder: Path) -> None:
    found = check(embedder, normalize=True)
    # Cosines do not see it; the vectors do.
    assert found.verdict == "fail"
    assert found.max_score_difference < 1e-3


@pytest.mark.parametrize("kind", ["embedder", "classifier"])
def test_special_tokens_dropped(
    kind: str, copy: Callable[[Path], Path], request: pytest.FixtureRequest
) -> None:
    directory = copy(request.getfixturevalue(kind))
    edit(directory / "tokenizer.json", lambda tokenizer: tokenizer.update(post_processor=None))
    assert check(directory).verdict == "fail"


def test_prompt_dropped(embedder: Path, copy: Callable[[Path], Path]) -> None:
    directory = copy(embedder)
    prompts = {"query": "query: ", "document": "passage: "}
    (directory / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling")))
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with_golden(directory)
    assert check(directory).verdict == "ok"
    (directory / "config_sentence_transformers.json").unlink()
    assert check(directory).verdict == "fail"


def test_refuse_warn_and_off(
    embedder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    right, wrong = load(embedder), load(embedder, pooling="cls")
    assert run_self_check(right, embedder, "refuse") is not None
    with pytest.raises(SelfCheckError, match=r"rose_golden\.json: 40 golden scores.*pooling"):
        run_self_check(wrong, embedder, "refuse")
    caplog.clear()
    found = run_self_check(wrong, embedder, "warn")
    assert found is not None
    assert found.verdict == "fail"
    assert "are not those of the reference" in caplog.text
    assert run_self_check(wrong, embedder, "off") is None
    assert run_self_check(wrong, tmp_path, "refuse") is None
    # Beside the directory, where the directory itself must not be written.
    beside = tmp_path / "model"
    beside.mkdir()
    shutil.copy(embedder / GOLDEN_FILE, tmp_path / "model.golden.json")
    with pytest.raises(SelfCheckError):
        run_self_check(wrong, beside, "refuse")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.update(version=2), "version"),
        (lambda g: g["queries"][0]["scores"].pop(), r"queries\[0\]: 9 scores for 10 documents"),
        (lambda g: g["texts"][3].update(head=["a"]), r"texts\[3\]: field 'head'"),
        (lambda g: g.pop("reference"), "'reference' is missing"),
    ],
)
def test_malformed_files_are_named(
    embedder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    path = tmp_path / GOLDEN_FILE
    shutil.copy(embedder / GOLDEN_FILE, path)
    edit(path, change)
    with pytest.raises(ModelLoadError, match=message):
        Golden.read(path)


def test_a_server_that_fails_its_check_does_not_start(embedder: Path) -> None:
    from rose.config import ServeConfig
    from rose.server import serve

    config = EngineConfig(device="cpu", pooling="cls")
    with pytest.raises(SelfCheckError, match="--self-check warn"):
        serve(embedder, config, ServeConfig(grpc_address="127.0.0.1:0"))
