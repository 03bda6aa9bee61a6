"""One clear line for everything that goes wrong, and the exit code that goes with it.

0 done; 1 an assertion failed, another process writes there, or an unexpected error; 2 wrong use or input;
3 no GPU or no torch; 130 interrupted. `INFERCOST_TRACEBACK=1` shows the traceback behind an unexpected error.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

from .. import InfercostError
from .text import clean

INTERRUPTED = 130
MOST_SAID = 3000
"""Characters of an error: beyond, an input was repeated in it."""


class FailedAssertionError(InfercostError):
    """A condition given with --assert does not hold."""

    exit_code = 1


def report_error(error: BaseException) -> int:
    """Say what went wrong on standard error and return the exit code."""
    if os.environ.get("INFERCOST_TRACEBACK", "0") not in ("", "0") and sys.stderr is not None:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, InfercostError):
        return _say(str(error), error.exit_code)
    if was_interrupted(error) or type(error).__name__ == "Abort":
        return _say("interrupted", INTERRUPTED)
    if type(error).__name__ == "Exit":
        return int(getattr(error, "exit_code", 0))
    if isinstance(error, BrokenPipeError) or getattr(error, "errno", None) == errno.EPIPE:
        _abandon_stdout()
        return 0
    show = getattr(error, "show", None)
    if type(error).__name__ == "NoArgsIsHelpError" and show is not None:
        show()  # the help: typer's own class, which has no public name
        return 2
    if hasattr(error, "format_message"):
        # Typer's usage errors share no public base class; this is what they have in common.
        from .synonyms import usage_line

        return _say(usage_line(error, sys.argv[1:]), int(getattr(error, "exit_code", 2)))
    if isinstance(error, OSError):
        _abandon_stdout()
        return _say(f"cannot write the output: {error.strerror or error}", 1)
    return _say(f"unexpected error: {type(error).__name__}: {error} (INFERCOST_TRACEBACK=1 shows more)", 1)


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error is an interrupt, or what something that was interrupted made of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _say(message: str, code: int) -> int:
    if sys.stderr is None:  # closed: print would take standard output
        return code
    line = " ".join(clean(message).split())
    if len(line) > MOST_SAID:
        line = f"{line[: MOST_SAID // 2]} [...] {line[-MOST_SAID // 4 :]}"
    with suppress(OSError, ValueError):  # where standard error is gone too, the exit code still tells
        print(f"infercost: {line}", file=sys.stderr)
    return code


def _abandon_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's last flush does not fail again."""
    with suppress(OSError, ValueError):  # not a real file (a test's buffer): nothing flushes to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
