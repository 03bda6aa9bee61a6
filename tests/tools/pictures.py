"""Draw the pictures of the README into docs/pictures; `--check` fails where one is stale.

The page's own picture, report.png, is a screenshot by Chromium, taken where there is one and never compared.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "pictures"
DRAWN = {
    "roofline.svg": "roofline --gpu a100,h100 --model llama-7b --batch 8 --seq 1024",
    "cache.svg": "kv --model llama-3-70b,gemma-3-27b,deepseek-v3 --seq 128k",
    "timeline.svg": "request --model llama-3-8b --gpu h100 --prompt 8k --gen 256 --batch 4",
    "memory.svg": "fit --model llama-3-8b --gpu h100 --seq 32k --batch 8",
    "serve.svg": "serve --model llama-3-8b --gpu h100 --prompt 2k --tpot 20ms",
    "validate.svg": "validate --kernels docs/example/l4-invented.csv",
}
PAGE = "report --model llama-3-8b --gpu h100 --prompt 2k --batch 8 --tpot 20ms"


def drawn(command: str, path: Path) -> None:
    words = [sys.executable, "-m", "infercost", *shlex.split(command)]
    option = "-o" if path.suffix == ".html" else "--plot"
    subprocess.run([*words, option, str(path)], check=True, capture_output=True, cwd=ROOT)


def screenshot(folder: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("no Chromium: report.png is left as it is")
        return
    drawn(PAGE, folder / "report.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,900"]
    shot = FOLDER / "report.png"
    page = (folder / "report.html").as_uri()
    subprocess.run([chromium, *flags, f"--screenshot={shot}", page], check=True, capture_output=True)


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = []
    with tempfile.TemporaryDirectory() as name:
        for file, command in DRAWN.items():
            path = Path(name) / file
            drawn(command, path)
            new, there = path.read_text(encoding="utf-8"), FOLDER / file
            if not there.exists() or there.read_text(encoding="utf-8") != new:
                stale.append(file)
                if not check:
                    FOLDER.mkdir(parents=True, exist_ok=True)
                    there.write_text(new, encoding="utf-8")
        if not check:
            screenshot(Path(name))
    if check and stale:
        print(f"stale: {', '.join(stale)}; run `python tests/tools/pictures.py`")
        return 1
    print(f"{'redrawn' if stale else 'current'}: {', '.join(stale or DRAWN)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
