"""A model's config.json from the HuggingFace hub: `hf:owner/name`, the one thing that asks the network."""

from __future__ import annotations

import re
from pathlib import Path

from .. import InputError
from .spec import Model


def model_from_hub(repository: str) -> Model:
    """The model of `owner/name` (or `owner/name@revision`).

    Raises InputError without the `hf` extra, for a malformed name, and where the hub does not answer.
    """
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w.-]+))?", repository)
    if match is None:
        raise InputError(f"'hf:{repository}' is not hf:owner/name")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise InputError("hf: needs huggingface_hub; pip install 'infercost[hf]'") from None
    try:
        path = hf_hub_download(match[1], "config.json", revision=match[2])
    except Exception as error:  # the library raises its own, requests' and the system's errors alike
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"hf:{repository}: the hub gave no config.json: {said[0][:200]}") from None
    from ..sheets import read_file
    from .huggingface import model_from_config, read_config

    name = match[1].split("/", 1)[1]
    source = f"huggingface.co/{match[1]}, config.json"
    return model_from_config(
        read_config(read_file(Path(path)), f"hf:{repository}"), f"hf:{repository}", name, source
    )
