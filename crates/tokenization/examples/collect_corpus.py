#!/usr/bin/env python3
"""Puts text files of many kinds into one folder, for the example `exactness`.

Takes directories, such as those of unpacked documentation packages, word lists and source code:

    collect_corpus.py --out CORPUS --max-mb 80 /usr/share/doc /usr/share/man ~/.cargo/registry/src

Compressed files are unpacked, what is not text is left out, and no directory gives more than its
share, so that no language or kind of text drowns the others. Packages of Debian that hold many
scripts: manpages-{de,fr,ja,pl,ru,tr,zh}, debian-reference-{de,ja,zh-cn}, debian-faq-{ja,ru,zh-cn},
hunspell-{ar,be,bn,bo,gu,he,hi,kmr,ko,te,th,vi}, aspell-{el,hi,hy,ta}, unicode-cldr-core.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import lzma
import random
from collections.abc import Iterator
from pathlib import Path

OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
# One file is one subject; the rest of a large one adds nothing.
MAX_FILE_BYTES = 400_000


def files_below(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path


def text_of(path: Path) -> bytes | None:
    """Contents of `path`, unpacked; none if it is no text."""
    opener = OPENERS.get(path.suffix)
    try:
        with opener(path) if opener else path.open("rb") as file:
            contents = file.read(MAX_FILE_BYTES)
    except (OSError, EOFError, lzma.LZMAError):
        return None
    return None if contents.count(0) > 2 or not contents.strip() else contents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--max-mb", type=float, default=80)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    share = options.max_mb * 1e6 / len(options.directories)
    for number, directory in enumerate(options.directories):
        paths = list(files_below(directory))
        random.Random(options.seed).shuffle(paths)
        size = 0
        for index, path in enumerate(paths):
            if size >= share:
                break
            contents = text_of(path)
            if contents is not None:
                (options.out / f"{number:03}-{index:06}").write_bytes(contents)
                size += len(contents)
        print(f"{directory}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
