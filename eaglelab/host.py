"""What the inventory says about one host: where it is, what runs there, how its server is started."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, PrivateAttr

from eaglelab.errors import HostError, InputError
from eaglelab.launcher import Container, LauncherName, Slurm, Systemd
from eaglelab.masking import Masker, is_secret_name
from eaglelab.setting_types import (
    Count,
    Port,
    Seconds,
    Settings,
    Text,
    Variable,
    Word,
    one_line,
    plain_text,
    variable_name,
    variable_value,
)

__all__ = [
    "MOST_STEPS",
    "FlagValue",
    "Host",
    "HostSettings",
    "Node",
    "Placeholder",
    "Server",
    "Speculative",
    "flag_name",
    "flag_value",
    "variable_name",
    "variable_value",
]

MOST_STEPS = 64
"""More draft steps are taken for a slip: SGLang captures a graph for each."""

FlagValue = bool | int | float | str | list[int | float | str]


@dataclass(frozen=True)
class Placeholder:
    """A value that the user still has to give: `text` says which, `where` is its file and line."""

    text: str
    where: str


def flag_value(value: object) -> FlagValue:
    items = value if isinstance(value, list) else [value]
    plain = all(isinstance(item, int | float | str) for item in items)
    if not plain or (isinstance(value, list) and any(isinstance(item, bool) for item in value)):
        raise ValueError("must be text, a number or a list of them, or true for a flag that takes no value")
    for item in items:
        plain_text(item)
    return value  # type: ignore[return-value]


def flag_name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError("must be the name of a flag in lower case without the leading --, such as mem-fraction-static")
    return name


def _ssh_config(value: object) -> bool | str:
    if isinstance(value, bool) or (isinstance(value, str) and value):
        return value
    raise ValueError("must be true, false or the path of an ssh_config file")


class Speculative(Settings):
    """Speculative decoding as SGLang takes it. `num_draft_tokens`: None means steps + 1."""

    algorithm: Text = "EAGLE3"
    draft_model_path: Text | None = None
    num_steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] = 2
    eagle_topk: Count = 1
    num_draft_tokens: Count | None = None


class Server(Settings):
    """One SGLang server. `flags` are further flags of SGLang, `env` variables of its process.

    `host` is what the server binds to, as seen on the machine. `speculative`: None means without speculation.
    `launcher` is how the host runs it; `systemd`, `container` and `slurm` are the options of the launcher of that name.

    `nnodes`: hosts that make this one server (docs/many-hosts.md); they meet at `dist_init_port` of the first, which the
    others reach by `dist_init_host` (None: by its address). `node_lost_after`: seconds that the link to one may be lost.
    """

    model_path: Text | None = None
    host: Word = "127.0.0.1"
    port: Port = 30000
    tp_size: Count = 1
    nnodes: Count = 1
    dist_init_host: Word | None = None
    dist_init_port: Port = 20000
    node_lost_after: Seconds = 600.0
    speculative: Speculative | None = Field(default_factory=Speculative)
    flags: dict[Annotated[str, AfterValidator(flag_name)], Annotated[FlagValue, PlainValidator(flag_value)]] = {}
    env: dict[Variable, Annotated[str, BeforeValidator(variable_value)]] = {}
    launcher: LauncherName = "process"
    systemd: Systemd = Field(default_factory=Systemd)
    container: Container = Field(default_factory=Container)
    slurm: Slurm = Field(default_factory=Slurm)

    @property
    def gpus(self) -> int:
        """GPUs that it takes on all nodes together: `tp_size` of them for each pipeline stage."""
        stages = next((self.flags[name] for name in ("pp-size", "pipeline-parallel-size") if name in self.flags), 1)
        return self.tp_size * (stages if isinstance(stages, int) and stages > 0 else 1)

    @property
    def gpus_a_node(self) -> int:
        """GPUs that it takes on each of its nodes."""
        return self.gpus // self.nnodes


class HostSettings(Settings):
    """What `defaults`, a group and a host may say; each key may be left out.

    Paths of the controller: `key`, `known_hosts`, `ssh_config`. Paths of the host, which may begin with `~/`:
    `python`, `sglang`, `log` and those in `server`. `port` and `user`: None leaves them to ssh_config.
    `sglang` is a checkout (package under `python/`) or a folder that holds `sglang/`; None means: ask `python`.
    `sudo`: log in as `user` and work as root there, by `sudo -n`; the home folder is then root's.
    Times are in seconds. `api_key_env` names the variable of the controller that holds the server's API key.
    `secrets` names variables that are masked beside those whose names give them away.
    """

    connection: Literal["ssh", "local", "lab"] = "ssh"
    address: Word | None = None
    user: Word | None = None
    port: Port | None = None
    key: Text | None = None
    known_hosts: Text | None = None
    connect_timeout: Seconds = 10.0
    ssh_config: Annotated[bool | str, PlainValidator(_ssh_config)] = True
    sudo: bool = False
    python: Annotated[Text, AfterValidator(one_line)] = "python3"
    sglang: Text | None = None
    log: Text = "~/.local/state/eaglelab/server.log"
    server: Server = Field(default_factory=Server)
    ready_timeout: Seconds = 1800.0
    expected_load: Seconds = 900.0
    api_key_env: Variable | None = None
    secrets: list[Variable] = []


class Node(Settings):
    """A host's place in a server of several: `server` is the group's name, `names` its hosts in the order of their ranks.

    `address`: host and port of rank 0, as `--dist-init-addr` takes them.
    """

    server: Word
    names: tuple[Word, ...]
    rank: int
    address: Text


class Host(HostSettings):
    """One host as `defaults`, its groups and its own entry make it. `node`: None where it is a server of its own."""

    name: Word
    node: Node | None = None

    _placeholders: Mapping[str, Placeholder] = PrivateAttr(default_factory=dict)
    _where: str = PrivateAttr(default="")

    @classmethod
    def build(cls, name: str, settings: Mapping[str, Any], placeholders: Mapping[str, Placeholder], where: str) -> Host:
        """A host from settings that were checked; `where` is its file and line."""
        host = cls.model_validate({**settings, "name": name})
        host._placeholders = dict(placeholders)
        host._where = where
        return host

    def unset(self) -> list[str]:
        """Dotted keys that a start needs and the inventory does not give, and all that it marks as `!unset`."""
        needed = {"server.model_path": self.server.model_path}
        if self.server.speculative is not None:
            needed["server.speculative.draft_model_path"] = self.server.speculative.draft_model_path
        missing = [key for key, value in needed.items() if value is None]
        return missing + [key for key in self._placeholders if key not in needed]

    def require(self, *keys: str) -> None:
        """Raises InputError, with file and line, if one of `keys` (all, if none is named) is still unset."""
        for key in self.unset():
            if not keys or key in keys:
                placeholder = self._placeholders.get(key)
                meant = f" ({placeholder.text})" if placeholder and placeholder.text else ""
                raise InputError(
                    f"{key} of host '{self.name}' is not set{meant}",
                    where=placeholder.where if placeholder else self._where,
                    hint=f"write the value of {key} there",
                )

    @property
    def named(self) -> str:
        """What to type for it after --host: the group, where it is one node of a server."""
        return self.node.server if self.node else self.name

    @property
    def where(self) -> str:
        """File and line of its entry."""
        return self._where

    def with_lab(self, lab: Mapping[str, Any]) -> Host:
        """This host with what the running lab says of itself. Raises HostError where that lacks something."""
        try:
            settings: dict[str, Any] = {key: lab[key] for key in _LAB_KEYS}
            server = {"model_path": lab["model_path"], "port": lab["server_port"]}
            draft = lab["draft_path"]
        except KeyError as error:
            hint = "invoke lab-down, then invoke lab-up"
            raise HostError(f"the lab's description lacks {error}", where=self.name, hint=hint) from error
        merged = self.model_dump()
        merged["server"].update(server)
        if self.server.speculative is not None:
            merged["server"]["speculative"]["draft_model_path"] = draft
        return Host.build(self.name, {**merged, **settings}, {}, self._where)

    def at_home(self, home: str) -> Host:
        """This host with its leading `~/` written out; `home` is the home folder on the host."""

        def expand(path: str | None) -> str | None:
            return f"{home.rstrip('/')}/{path[2:]}" if path is not None and path.startswith("~/") else path

        speculative = self.server.speculative
        if speculative is not None:
            speculative = speculative.model_copy(update={"draft_model_path": expand(speculative.draft_model_path)})
        server = self.server.model_copy(
            update={"model_path": expand(self.server.model_path), "speculative": speculative}
        )
        paths = {key: expand(getattr(self, key)) for key in ("python", "sglang", "log")}
        return self.model_copy(update={**paths, "server": server})

    def api_key(self, env: Mapping[str, str]) -> str | None:
        """The server's API key out of the controller's `env`; None where the host has none. Raises InputError."""
        if self.api_key_env is None:
            flag = self.server.flags.get("api-key")
            return None if flag is None else str(flag)
        value = env.get(self.api_key_env)
        if not value:
            what = f"{self.api_key_env}, which holds the API key of host '{self.name}', is not set"
            raise InputError(what, where=self._where, hint=f"export {self.api_key_env}=...")
        return value

    def masker(self, env: Mapping[str, str]) -> Masker:
        """Masks this host's secrets: those in its flags and variables, and those that it names, out of `env`."""
        names = [*self.secrets, *([self.api_key_env] if self.api_key_env else [])]
        values = [source[name] for source in (env, self.server.env) for name in names if name in source]
        # A short value such as TOKENIZERS_PARALLELISM=false is no secret, and masking it would eat other text.
        values += [value for name, value in self.server.env.items() if is_secret_name(name) and len(value) >= 6]
        values += [str(value) for name, value in self.server.flags.items() if is_secret_name(name)]
        return Masker(names, values)

    def redacted(self) -> dict[str, Any]:
        """The entry as resolved, fit for a bundle: secrets in variables and flags are `***`, and of the launchers'
        options only those of this host's are there."""
        others = {"systemd", "container", "slurm"} - {self.server.launcher}
        if self.server.nnodes == 1:
            others |= {"nnodes", "dist_init_host", "dist_init_port", "node_lost_after"}
        without: dict[str, Any] = {"server": others, **({} if self.node else {"node": True})}
        return self.masker({}).mapping({"name": self.name, **self.model_dump(mode="json", exclude=without)})


_LAB_KEYS = ("address", "port", "user", "key", "known_hosts", "python", "sglang", "log")
