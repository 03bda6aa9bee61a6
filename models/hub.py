"""A model's config.json from the HuggingFace hub: `hf:owner/name`, the one thing that asks the network."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from .. import InputError
from ..sheets import MAX_CONFIG_BYTES, read_file
from .huggingface import QUANTISATION_FILE, model_from_config, read_config, with_quantisation
from .spec import Model


def model_from_hub(repository: str) -> Model:
    """The model of `owner/name` (or `owner/name@revision`).

    Raises InputError without the `hf` extra, for a malformed name, and where the hub does not answer.
    """
    match = re.fullmatch(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w.-]*))?", repository)
    if match is None:
        raise InputError(f"'hf:{repository}' is not hf:owner/name")
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError:
        raise InputError("hf: needs huggingface_hub; pip install 'infercost[hf]'") from None
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

    def read(path: str) -> str:
        return read_file(Path(path), MAX_CONFIG_BYTES, "a config.json")

    def fetch(file: str) -> str:
        named = {"repo_id": match[1], "filename": file, "revision": match[2]}
        try:
            # The download retries for 20 s where there is no network; this fails at once.
            get_hf_file_metadata(hf_hub_url(**named), timeout=5)
        except Exception as error:
            try:
                return read(hf_hub_download(**named, local_files_only=True))
            except Exception:  # not fetched before either: the hub's own answer is the one to give
                raise error from None
        return read(hf_hub_download(**named))

    origin, name, unknown = f"hf:{repository}", match[1].split("/", 1)[1], ""
    try:
        data = read_config(fetch("config.json"), origin)
    except InputError:
        raise
    except Exception as error:  # the library raises its own, requests' and the system's errors alike
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{origin}: the hub gave no config.json ({said[:120]}); download it and give its path"
        ) from None
    try:
        data = with_quantisation(data, partial(fetch, QUANTISATION_FILE), origin)
    except InputError:
        raise
    except EntryNotFoundError:
        pass  # most repositories have none
    except Exception:  # as above
        unknown = f"no {QUANTISATION_FILE}: the hub could not be asked for it"
    model = model_from_config(data, origin, name, f"huggingface.co/{match[1]}, config.json")
    return replace(model, inferred=(*model.inferred, unknown)) if unknown else model
