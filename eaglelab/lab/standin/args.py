"""SGLang's command line, as far as the stand-in understands it; every other flag is taken and kept as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Release", "ServerArgs", "UsageError", "parse"]

Flag = str | bool | list[str]

ALIASES = {
    "model": "model_path",
    "tp": "tp_size",
    "tensor_parallel_size": "tp_size",
    "speculative_draft_model": "speculative_draft_model_path",
    "nccl_init_addr": "dist_init_addr",
}


class UsageError(Exception):
    """The command line cannot be used; SGLang's argparse would exit with 2."""


class Release(tuple[int, ...]):
    """The numbers of a release, so that `Release.of("0.5.9.post1") >= (0, 5, 9)`."""

    @classmethod
    def of(cls, version: str) -> Release:
        return cls(int(part) for part in version.split(".")[:3] if part.isdigit())


@dataclass(frozen=True)
class ServerArgs:
    """The arguments the stand-in acts on, with SGLang's names and defaults; `other` holds the rest."""

    model_path: str
    host: str = "127.0.0.1"
    port: int = 30000
    tp_size: int = 1
    nnodes: int = 1
    node_rank: int = 0
    dist_init_addr: str | None = None
    served_model_name: str = ""
    log_level: str = "info"
    api_key: str | None = None
    skip_server_warmup: bool = False
    skip_tokenizer_init: bool = False
    enable_metrics: bool = False
    decode_log_interval: int = 40
    max_running_requests: int = 48
    disable_overlap_schedule: bool = False
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    speculative_adaptive: bool = False
    speculative_adaptive_config: str | None = None
    load_seconds: float | None = None
    other: dict[str, Flag] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """What `/get_server_info` shows of them."""
        shown = {name: value for name, value in vars(self).items() if name not in ("other", "load_seconds")}
        return {**shown, **self.other}

    def __str__(self) -> str:
        return f"ServerArgs({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"


def _flags(argv: Sequence[str]) -> dict[str, Flag]:
    """`--name value`, `--name=value`, `--name a b`, or `--name` alone, by name with underscores."""
    flags: dict[str, Flag] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            name = name.replace("-", "_")
            name = ALIASES.get(name, name)
            flags[name] = value if given else True
        elif not name:
            raise UsageError(f"unrecognized arguments: {word}")
        else:
            before = flags[name]
            flags[name] = word if before is True else [*(before if isinstance(before, list) else [str(before)]), word]
    return flags


def _typed(name: str, value: Flag, kind: str) -> Any:
    if "bool" in kind:
        return value is True or str(value).lower() in ("true", "1")
    if isinstance(value, (bool, list)):
        raise UsageError(f"argument --{name.replace('_', '-')}: expected one argument")
    try:
        return int(value) if "int" in kind else float(value) if "float" in kind else value
    except ValueError:
        raise UsageError(f"argument --{name.replace('_', '-')}: invalid {kind.split()[0]} value: {value!r}") from None


def parse(argv: Sequence[str]) -> ServerArgs:
    """Read a command line.

    Raises:
        UsageError: no model path, or a value that is not what its flag takes.
    """
    flags = _flags(argv)
    kinds = {name: str(kind) for name, kind in ServerArgs.__annotations__.items() if name != "other"}
    if "model_path" not in flags:
        raise UsageError("the following arguments are required: --model-path/--model")
    known = {name: _typed(name, flags.pop(name), kind) for name, kind in kinds.items() if name in flags}
    known.setdefault("served_model_name", known["model_path"])
    return ServerArgs(**known, other=flags)


def read_config(model_path: str) -> dict[str, Any]:
    """The model's `config.json`.

    Raises:
        OSError: there is none, in the words of the library that SGLang asks.
    """
    file = Path(model_path).expanduser() / "config.json"
    if not file.is_file():
        raise OSError(
            f"{model_path} does not appear to have a file named config.json. "
            f"Checkout 'https://huggingface.co/{model_path}/tree/main' for available files."
        )
    config = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise OSError(f"It looks like the config file at '{file}' is not a valid JSON file.")
    return config
