"""Paste real output into README.md and docs/*.md; `--check` fails where it is stale.

A marker `<!-- $ infercost ... -->` on its own line is followed by a fenced block, whose content is
replaced by the command line and what it prints today, in the root of the checkout.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"(<!-- \$ (infercost [^\n]*?) -->\n```[a-z]*\n)(.*?)(^```)", re.DOTALL | re.MULTILINE)


def output_of(command: str) -> str:
    words = shlex.split(command)[1:]
    strange = ("INFERCOST", "FORCE_COLOR", "GITHUB_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(strange)}
    result = subprocess.run(
        [sys.executable, "-P", "-m", "infercost", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**env, "PYTHONIOENCODING": "utf-8"},
        cwd=ROOT,
    )
    return f"$ {command}\n{(result.stdout + result.stderr).rstrip()}\n"


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        old = page.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda m: m[1] + output_of(m[2]) + m[4], old)
        if new != old:
            stale.append(page.relative_to(ROOT).as_posix())
            if not check:
                page.write_text(new, encoding="utf-8")
    if check and stale:
        print(f"stale: {', '.join(stale)}; run `python tests/tools/readme.py`")
        return 1
    print(f"{'rewritten' if stale else 'current'}: {', '.join(stale) or 'README.md and docs'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
