"""What can be known of a load before it is spent: the models' own configs, and the flags that this SGLang knows."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import Any, Iterable, Sequence

__all__ = ["flags_not_known", "model_facts", "nccl_version", "torch_version", "variables_not_known"]

_MOST_TEXT = 4 << 20
_ALWAYS_THERE = frozenset(("model-path", "port", "tp-size", "mem-fraction-static"))
"""Flags that every release has: where the search does not find these, it finds too little to say anything."""


def model_facts(paths: dict[str, str]) -> dict[str, Any]:
    """Of each model folder its config.json and the bytes of its weights; a name of a hub is left out."""
    found = {}
    for which, path in paths.items():
        folder = os.path.expanduser(path)
        if os.path.isdir(folder):
            found[which] = {"path": folder, "config": _model_config(folder), "weights": _weight_bytes(folder)}
    return found


def _model_config(folder: str) -> Any:
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.loads(file.read(_MOST_TEXT))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _weight_bytes(folder: str) -> int:
    for ending in ("*.safetensors", "*.bin"):
        paths = glob.glob(os.path.join(glob.escape(folder), ending))
        if paths:
            return sum(os.path.getsize(path) for path in paths if os.path.exists(path))
    return 0


def flags_not_known(package: str, flags: Sequence[str]) -> Any:
    """Which of the flags (named without dashes) this release does not know, each with the nearest that it does.

    Read in server_args.py, and from 0.5.20 on in the files of arg_groups, as text: a release's own Python need not be
    this one. What argparse would take for a unique beginning of a flag counts as known. None where it cannot be told.
    """
    srt = os.path.join(package, "srt")
    sources = glob.glob(os.path.join(glob.escape(srt), "arg_groups", "**", "*.py"), recursive=True)
    known = set()
    for path in [os.path.join(srt, "server_args.py")] + sources:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(_MOST_TEXT)
        except OSError:
            continue
        known.update(re.findall(r"[\"']--([a-z0-9][a-z0-9-]*)[\"']", text))
        known.update(name.replace("_", "-") for name in re.findall(r"^    ([a-z][a-z0-9_]*) *:", text, re.M))
    if not known >= _ALWAYS_THERE:
        return None
    unknown = [flag for flag in flags if not any(name.startswith(flag) for name in known)]
    return {"known": len(known), "unknown": {flag: _nearest_of(flag, known) for flag in unknown}}


def variables_not_known(package: str, names: Sequence[str]) -> Any:
    """Which of the environment variables no file of this release names, each with the nearest that one does.

    Only those that begin with SGLANG_ are SGLang's own to know. Read as text. None where none of them is found there at all.
    """
    own = [name for name in names if name.startswith("SGLANG_")]
    known = set()
    for path in glob.iglob(os.path.join(glob.escape(package), "**", "*.py"), recursive=True) if own else ():
        try:
            with open(path, "rb") as file:
                known.update(re.findall(rb"\bSGLANG_[A-Z0-9_]+", file.read(_MOST_TEXT)))
        except OSError:
            continue
    if not known:
        return None
    words = sorted(name.decode() for name in known)
    return {"known": len(words), "unknown": {name: _nearest_of(name, words) for name in own if name not in words}}


def _nearest_of(word: str, known: Iterable[str]) -> str | None:
    import difflib  # here, for the sake of every start that goes well

    found = difflib.get_close_matches(word, list(known), n=1)
    return found[0] if found else None


def torch_version(path: Sequence[str]) -> Any:
    """Of the PyTorch that a Python imports whose `sys.path` this is, without starting it; None where it cannot be told."""
    return _version_of(path, "torch")


def nccl_version(path: Sequence[str]) -> Any:
    """Of the NCCL that such a PyTorch came with; None where it cannot be told: it may bring one of its own."""
    return _version_of(path, "nvidia_nccl_cu[0-9]*")


def _version_of(path: Sequence[str], package: str) -> Any:
    for folder in filter(None, path):
        records = glob.glob(os.path.join(glob.escape(folder), package + "-*.dist-info"))
        found = {os.path.basename(record)[: -len(".dist-info")].partition("-")[2] for record in records}
        if found:
            return found.pop() if len(found) == 1 else None
    return None
