"""One parser under atheris, which steers by coverage.

`python tests/fuzz/guided.py 'model sheet' -atheris_runs=100000 [libFuzzer's options]`; a crash is written
beside the corpus, whose folder is named at the start.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))
with atheris.instrument_imports(include=["infercost"]):
    from parsers import PARSERS, refuses


def main() -> None:
    parser = PARSERS[sys.argv[1]]
    corpus = Path(tempfile.mkdtemp(prefix="infercost-corpus-"))
    for i, seed in enumerate(parser.seeds):
        (corpus / f"seed-{i}").write_bytes(seed)
    print(f"corpus: {corpus}", flush=True)
    options = [*sys.argv[2:], f"-artifact_prefix={corpus}/", str(corpus)]
    atheris.Setup([sys.argv[0], *options], lambda data: refuses(parser, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
