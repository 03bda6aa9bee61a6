"""`python -m infercost`, and the `infercost` script: the command line, imported under a guard."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt while it is still being imported is one line too."""
    try:
        from .cli.app import main as run

        run()
    except (KeyboardInterrupt, RuntimeError) as error:
        # An import that was interrupted may say so as the cause of a RuntimeError.
        if isinstance(error, RuntimeError) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        if sys.stderr is not None:
            print("infercost: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
