"""The SDKs whose integrations still ask for an older major version: their newest, same tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Service, as_environment

DIRECTORY = Path(os.environ.get("NEWEST_SDKS", Path(sys.prefix, "newest-sdks")))
"""Where `make environment` puts `requirements/http-clients-newest.txt`."""


@pytest.mark.skipif(not DIRECTORY.is_dir(), reason="`make environment` installs the newest SDKs")
@pytest.mark.parametrize("name", ["cohere", "voyage"])
def test_newest(name: str, embedder: Service, reranker: Service) -> None:
    here = Path(__file__).parent
    path = os.pathsep.join([str(DIRECTORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{name}.py"],
        capture_output=True,
        text=True,
        cwd=here,
        env=os.environ
        | {"PYTHONPATH": path}
        | as_environment(embedder=embedder, reranker=reranker),
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
