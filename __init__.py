"""infercost: what an LLM request costs before you run it, and why.

    from infercost import kv, load_gpu, load_model, request

    kv("llama-7b", 32768).logical_bytes
    request("llama-3-8b", prompt=2048, gen=256, gpu="h100").tpot_s.expected

Errors a caller can meet, one tree::

    InfercostError          one clear line; `exit_code` is what the command line returns
    ├── InputError          wrong use or input (exit 2)
    │   └── SheetError      a sheet, named with file and line
    └── DeviceError         no GPU or no torch (exit 3)
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cli.api import diagnose, fit, kv, ops, request, roofline, run, serve, weights
    from .cli.result import Result
    from .hardware.catalogue import gpu_names, load_gpu
    from .hardware.engine import engine_names, load_engine
    from .hardware.spec import Gpu
    from .models.catalogue import load_model, model_names
    from .models.spec import Model
    from .sheets import SheetError

__version__ = "0.1.0"

__all__ = [
    "DeviceError",
    "Gpu",
    "InfercostError",
    "InputError",
    "Model",
    "Result",
    "SheetError",
    "diagnose",
    "engine_names",
    "fit",
    "gpu_names",
    "kv",
    "load_engine",
    "load_gpu",
    "load_model",
    "model_names",
    "ops",
    "request",
    "roofline",
    "run",
    "serve",
    "weights",
]

_HOMES = {
    "cli.api": ("diagnose", "fit", "kv", "ops", "request", "roofline", "run", "serve", "weights"),
    "cli.result": ("Result",),
    "hardware.catalogue": ("gpu_names", "load_gpu"),
    "hardware.engine": ("engine_names", "load_engine"),
    "hardware.spec": ("Gpu",),
    "models.catalogue": ("load_model", "model_names"),
    "models.spec": ("Model",),
    "sheets": ("SheetError",),
}
"""Where each public name lives. A name is imported when it is first asked for (PEP 562), so that the package
itself, which every command imports, costs nothing."""

if not TYPE_CHECKING:

    def __getattr__(name):
        home = next((module for module, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'infercost' has no attribute '{name}'")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"infercost.{home}"), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


class InfercostError(Exception):
    """Base of every error this package raises on purpose; its text is shown as it stands."""

    exit_code = 1


class InputError(InfercostError, ValueError):
    """What was given cannot be used: the text says what is allowed and the nearest match."""

    exit_code = 2


class DeviceError(InfercostError):
    """The device or the library a measurement needs is not there."""

    exit_code = 3
