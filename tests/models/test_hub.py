"""`hf:owner/name` against a stand-in for huggingface_hub: no test asks the network."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infercost import InputError
from infercost.models.catalogue import load_model


class EntryNotFoundError(Exception):
    """The hub's word for a file that the repository does not have, by its name."""


class Hub:
    """What the library does for us: files of one repository, a cache on disk, a network that may be gone."""

    def __init__(self, files: dict[str, Any], cache: Path) -> None:
        self.files, self.cache, self.online = files, cache, True

    def metadata(self, url: str, timeout: float) -> None:
        if not self.online:
            raise OSError(f"no way to {url}")
        if url.split("|")[1] not in self.files:
            raise EntryNotFoundError(url)

    def download(
        self, repo_id: str, filename: str, revision: str | None, local_files_only: bool = False
    ) -> str:
        path = self.cache / filename
        if not local_files_only:
            path.write_text(json.dumps(self.files[filename]), encoding="utf-8")
        if not path.is_file():
            raise FileNotFoundError(filename)
        return str(path)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_llama: dict[str, Any]) -> Hub:
    made, module = Hub({"config.json": small_llama}, tmp_path), ModuleType("huggingface_hub")
    monkeypatch.setattr(module, "get_hf_file_metadata", made.metadata, raising=False)
    monkeypatch.setattr(module, "hf_hub_download", made.download, raising=False)
    url = "{repo_id}|{filename}".format
    monkeypatch.setattr(module, "hf_hub_url", lambda **named: url(**named), raising=False)
    errors = ModuleType("huggingface_hub.errors")
    monkeypatch.setattr(errors, "EntryNotFoundError", EntryNotFoundError, raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    return made


def test_a_repository(hub: Hub) -> None:
    model = load_model("hf:owner/small@main")
    assert (model.name, model.weights) == ("small", "")
    assert model.source == "huggingface.co/owner/small, config.json"
    assert not any("hub" in word for word in model.inferred), "that there is no such file is an answer"
    hub.files["hf_quant_config.json"] = {"quantization": {"quant_algo": "FP8"}}
    assert load_model("hf:owner/small").weights == "fp8"


def test_without_a_network(hub: Hub) -> None:
    """What was fetched before is used, and what could not be asked for is said; else one clear line."""
    before = load_model("hf:owner/small")
    hub.online = False
    offline = load_model("hf:owner/small")
    assert offline.parameters == before.parameters
    assert "no hf_quant_config.json: the hub could not be asked for it" in offline.inferred
    (hub.cache / "config.json").unlink()
    with pytest.raises(InputError, match=r"gave no config.json \(no way to owner/small.*give its path"):
        load_model("hf:owner/small")


def test_names(hub: Hub) -> None:
    for bad in ("hf:owner", "hf:../x", "hf:-x/y", "hf:a/b/c"):
        with pytest.raises(InputError, match="is not hf:owner/name"):
            load_model(bad)
