"""A model's config.json from the HuggingFace hub: `hf:owner/name`, the one thing that asks the network."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from .. import InputError
from ..sheets import read_file
from .huggingface import model_from_config, read_config
from .spec import Model


def model_from_hub(repository: str) -> Model:
    """The model of `owner/name` (or `owner/name@revision`).

    Raises InputError without the `hf` extra, for a malformed name, and where the hub does not answer.
    """
    match = re.fullmatch(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w.-]*))?", repository)
    if match is None:
        raise InputError(f"'hf:{repository}' is not hf:owner/name")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise InputError("hf: needs huggingface_hub; pip install 'infercost[hf]'") from None
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

    def fetch(file: str) -> str:
        return read_file(Path(hf_hub_download(match[1], file, revision=match[2], etag_timeout=5)))

    origin, name = f"hf:{repository}", match[1].split("/", 1)[1]
    try:
        data = read_config(fetch("config.json"), origin)
    except InputError:
        raise
    except Exception as error:  # the library raises its own, requests' and the system's errors alike
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{origin}: the hub gave no config.json ({said[:120]}); download it and give its path"
        ) from None
    if not data.get("quantization_config"):
        try:
            data["quantization_config"] = read_config(fetch("hf_quant_config.json"), origin)
        except InputError:
            raise
        except Exception:  # most repositories have none, and the library has a dozen ways to say so
            pass
    return model_from_config(data, origin, name, f"huggingface.co/{match[1]}, config.json")
