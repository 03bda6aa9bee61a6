"""Hostile files against every command that reads one, each a process of its own: what is a fault here?

A traceback, an unexpected exit code, more than 10 s of CPU time or 40 s in all, more than 1 GiB, or an escape
sequence on the screen.
`python tests/tools/attack.py FOLDER [words]`: files are made in FOLDER (300 MB ones, too); `words` choose
among files and commands. Prints each fault and the number of inputs tried; exit 1 where there is a fault.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
import hostile

MOST_CPU_S, MOST_S, MOST_MIB = 10.0, 40.0, 1024.0
CODES = (0, 1, 2, 3)
OBEYED = ("\x1b", "\x07", "\x08", "\x9b", "\u202e", "\u2066")


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    cpu_s: float
    mib: float


def run(args: list[str], env: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL) -> Ended:
    """`infercost ARGS`; killed (code -9) where it takes too long."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "infercost", *args], stdin=stdin, stdout=out, stderr=err, env=env
        )
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            if time.monotonic() - start > MOST_S:
                process.kill()
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(1 << 24).decode(errors="replace"))
    used = ended[2]
    return Ended(process.returncode, *texts, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def faults(ended: Ended) -> list[str]:
    said = ended.out + ended.err
    found = {
        f"exit code {ended.code}": ended.code not in CODES,
        "traceback": "Traceback" in said or "unexpected error" in said,
        f"{ended.cpu_s:.1f} s": ended.cpu_s > MOST_CPU_S,
        f"{ended.mib:.0f} MiB": ended.mib > MOST_MIB,
        "escape": any(ch in said for ch in OBEYED),
        "not one line": ended.code in (2, 3) and ended.err.count("\n") != 1,
    }
    return [name for name, holds in found.items() if holds]


def main() -> int:
    folder, chosen = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(exist_ok=True)
    # By another process: what this one once held would count as memory of every process it starts.
    subprocess.run([sys.executable, hostile.__file__, str(folder)], check=True)
    tried = bad = 0
    for path in sorted(folder.iterdir()):
        for command in hostile.KINDS[path.suffix[1:]]:
            if not all(word in f"{command} {path}" for word in chosen):
                continue
            tried += 1
            ended = run([*command.split(), str(path)])
            if found := faults(ended):
                bad += 1
                print(f"{', '.join(found)}: {command} {str(path)!a}: {ended.err[-200:]!a}", flush=True)
    print(f"{tried:,} inputs tried, {bad:,} faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
