"""The table of a run, from what pytest writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benches" / "gpu_parity.py"
CASE = """
def test_score(record_property):
    record_property("family", "bert-score")
    record_property("score_bfloat16", 0.002)
    assert {passes}

def test_close(record_property):
    record_property("family", "bert")
    record_property("vector_bfloat16", 0.00012)
    record_property("vector_float16", 2e-6)

def test_same(record_property):
    record_property("family", "bert")
    record_property("batched", 0.0)
    record_property("replayed", 3e-5)
"""


def _run_of_pytest(directory: Path, *, passes: bool) -> Path:
    (directory / "test_case.py").write_text(CASE.replace("{passes}", str(passes)))
    junit = directory / "gpu.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={junit}",
    ]
    subprocess.run([*command, str(directory)], cwd=directory, capture_output=True, check=False)
    return junit


def _script(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_table_of_a_run(tmp_path: Path) -> None:
    junit = _run_of_pytest(tmp_path, passes=True)
    document, figures = tmp_path / "models.md", tmp_path / "figures.json"
    marks = "<!-- gpu parity: made by benches/gpu_parity.py -->", "<!-- end of gpu parity -->"
    document.write_text(f"before\n{marks[0]}\nold\n{marks[1]}\nafter\n")
    finished = _script(junit, "--json", figures, "--into", document, "--device", "D")
    assert finished.returncode == 0, finished.stderr
    text = document.read_text()
    assert (
        "| bert | vectors, smallest cosine | 0.999880 | 0.999998 |  | 0 |  |  | 3.0e-05 |" in text
    )
    assert "| bert-score | score, largest difference | 2.0e-03 |  |" in text
    assert text.index("| bert |") < text.index("| bert-score |"), "by name"
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    values = json.loads(figures.read_text())
    assert values["device"] == "D"
    assert values["families"]["bert"]["float16"] == 2e-6


def test_no_table_of_a_failed_run(tmp_path: Path) -> None:
    finished = _script(_run_of_pytest(tmp_path, passes=False))
    assert finished.returncode != 0
    assert "test_score failed" in finished.stderr


def test_documents_have_the_marks() -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert text.index("<!-- gpu parity: made by") < text.index("<!-- end of gpu parity -->")
