"""infercost: what an LLM request costs before you run it, and why.

Errors a caller can meet, one tree::

    InfercostError          one clear line; `exit_code` is what the command line returns
    ├── InputError          wrong use or input (exit 2)
    │   └── SheetError      a sheet, named with file and line (in `infercost.sheets`)
    └── DeviceError         no GPU or no torch (exit 3)
"""

__version__ = "0.1.0"


class InfercostError(Exception):
    """Base of every error this package raises on purpose; its text is shown as it stands."""

    exit_code = 1


class InputError(InfercostError, ValueError):
    """What was given cannot be used: the text says what is allowed and the nearest match."""

    exit_code = 2


class DeviceError(InfercostError):
    """The device or the library a measurement needs is not there."""

    exit_code = 3
