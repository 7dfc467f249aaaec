"""How a host runs its server: the launcher's name, and what each launcher can be told."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from eaglelab.setting_types import Count, Seconds, Settings, Text, Word

__all__ = ["Container", "LauncherName", "Slurm", "Systemd"]

LauncherName = Literal["process", "systemd", "container", "slurm"]

_SLURM_OWN = (
    *("--job-name", "-J", "--output", "-o", "--error", "-e", "--open-mode", "--comment", "--export", "--wrap"),
    *("--array", "-a", "--requeue", "--no-requeue", "--parsable", "--chdir", "-D", "--nodes", "-N", "--ntasks", "-n"),
    *(
        "--partition",
        "-p",
        "--account",
        "-A",
        "--qos",
        "-q",
        "--time",
        "-t",
        "--gpus-per-node",
        "--wait",
        "-W",
        "--hold",
    ),
)
_CONTAINER_OWN = (
    *("--name", "--rm", "--detach", "-d", "--env", "-e", "--env-file", "--entrypoint", "--volume", "-v", "--mount"),
    *(
        "--network",
        "--net",
        "--pid",
        "--restart",
        "--user",
        "-u",
        "--workdir",
        "-w",
        "--interactive",
        "-i",
        "--tty",
        "-t",
    ),
    *("--replace", "--log-driver", "--log-opt", "--label", "-l", "--init", "--stop-signal"),
)


def _slurm_option(option: str) -> str:
    return _option(option, _SLURM_OWN, "sbatch")


def _container_option(option: str) -> str:
    return _option(option, _CONTAINER_OWN, "run")


def _option(option: str, own: tuple[str, ...], command: str) -> str:
    if not option.startswith("-"):
        raise ValueError(f"must be an option of {command}, with its value after `=`, not '{option}'")
    name = option.partition("=")[0] if option.startswith("--") else option[:2]
    # sbatch takes the beginning of a long name for the whole.
    if name in own or (name.startswith("--") and any(word.startswith(name) for word in own)):
        raise ValueError(f"may not hold {name}, which is given here anyway or has a key of its own")
    return option


def _slurm_time(text: str) -> str:
    if not re.fullmatch(r"(\d+-)?\d+(:\d\d){0,2}", text):
        raise ValueError(f"must be a time as sbatch takes it, such as '04:00:00' or '1-12:00:00', not '{text}'")
    return text


def _unit(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9:_.@\\-]+\.service", name):
        raise ValueError(f"must be the name of a unit that ends with .service, not '{name}'")
    return name


def _path(path: str) -> str:
    if not path.startswith("/") or ":" in path:
        raise ValueError(f"must be the whole path of a folder of the host, without a colon, not '{path}'")
    return path


class Systemd(Settings):
    """`unit`: an existing service that runs the server, through a drop-in that goes when the server is stopped; None
    makes a transient one. `user`: the user's own manager (systemctl --user). `properties` are further lines of the
    unit's [Service], such as `LimitMEMLOCK: infinity`."""

    unit: Annotated[Word, AfterValidator(_unit)] | None = None
    user: bool = False
    properties: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]+$")], Text] = {}


class Container(Settings):
    """`image` holds SGLang; it is never changed. `python` is the Python inside, `folders` are the host's that the server
    sees under the same path, read only (models). `options` are further ones of `run`, such as `--gpus=all`."""

    engine: Literal["docker", "podman"] = "docker"
    image: Word | None = None
    python: Text = "python3"
    folders: list[Annotated[Text, AfterValidator(_path)]] = []
    options: list[Annotated[Text, AfterValidator(_container_option)]] = []


class Slurm(Settings):
    """`gpus`: how many to reserve; None takes as many as the server has ranks, 0 asks for none. `queue_timeout`: seconds that a job may
    wait for its turn; they do not count as load. `options` are further ones of `sbatch`, such as `--mem=0`.

    Of `sweep --array`: `array` jobs at most are in the queue or at work at a time (None: all), and one whose server nobody
    has asked for anything for `idle` seconds ends itself."""

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    time: Annotated[Text, AfterValidator(_slurm_time)] | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None
    cpus: Count | None = None
    queue_timeout: Seconds = 86400.0
    array: Count | None = None
    idle: Seconds = 1800.0
    options: list[Annotated[Text, AfterValidator(_slurm_option)]] = []
