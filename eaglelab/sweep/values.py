"""Values to try, as the command line or a file gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from eaglelab.checking import check
from eaglelab.errors import InputError
from eaglelab.host import MOST_STEPS, FlagValue, flag_name, flag_value, variable_name, variable_value
from eaglelab.masking import is_secret_name
from eaglelab.probe_variables import SET_BY_MEASURING, why_no_count
from eaglelab.server.command import OWN_FLAGS
from eaglelab.sweep.matrix import Matrix
from eaglelab.sweep.one_load import ADAPTIVE_FLAGS
from eaglelab.yamlfile import load

__all__ = ["environments", "load_sweep", "server_args"]

_SWITCH = {"on": True, "true": True, "off": False, "false": False}


def environments(pairs: Iterable[str]) -> dict[str, list[str]]:
    """`NCCL_ALGO=Ring,Tree` as {"NCCL_ALGO": ["Ring", "Tree"]}. A value with a comma in it needs a file. Raises InputError."""
    found = {_checked(name, "--env", _variable): values for name, values in _pairs(pairs, "--env")}
    for name, what in _unusable(found):
        raise InputError(what, where="--env", hint=f"--env {name}=1,4")
    return found


def server_args(pairs: Iterable[str]) -> dict[str, list[FlagValue]]:
    """`disable-custom-all-reduce=on,off` as {...: [True, False]}; numbers become numbers. Raises InputError."""
    found = {}
    for name, values in _pairs(pairs, "--server-arg"):
        flag = _checked(name.removeprefix("--"), "--server-arg", _sweepable)
        found[flag] = [_flag_value(value) for value in values]
    return found


def _pairs(pairs: Iterable[str], option: str) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        values = [value.strip() for value in text.split(",")]
        if not equals or not name or not all(values):
            raise InputError(f"'{pair}' gives no values", where=option, hint=f"{option} NAME=VALUE[,VALUE]")
        if name in found:
            raise InputError(f"{name} is given twice", where=option, hint=f"{option} {name}=FIRST,SECOND")
        found[name] = values
    return list(found.items())


def _checked(name: str, option: str, rule: object) -> str:
    try:
        rule(name)  # type: ignore[operator]
    except ValueError as error:
        raise InputError(f"'{name}' {error}", where=option, hint=f"{option} NAME=VALUE[,VALUE]") from error
    return name


def _variable(name: str) -> str:
    if name in SET_BY_MEASURING:
        raise ValueError(f"is what a sweep itself sets ({SET_BY_MEASURING[name]}): leave it out")
    return _no_secret(variable_name(name))


def _unusable(env: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """Variables that the probe reads, with a value that it cannot use, each with a sentence: else a load would show it."""
    for name, values in env.items():
        for value in values:
            why = why_no_count(name, value)
            if why is not None:
                yield name, why


def _no_secret(name: str) -> str:
    if is_secret_name(name):
        raise ValueError("holds a secret and is not varied: what is varied names the setting everywhere")
    return name


def _sweepable(name: str) -> str:
    _no_secret(flag_name(name))
    if name in OWN_FLAGS:
        raise ValueError(f"is set by {OWN_FLAGS[name]} of the inventory and is not varied")
    if name in ADAPTIVE_FLAGS:
        raise ValueError("is what a sweep itself uses to hold several step counts in one load")
    return name


def _flag_value(text: str) -> FlagValue:
    if text.lower() in _SWITCH:
        return _SWITCH[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class _SweepFile(BaseModel):
    """A sweep as a file: what `--steps`, `--env`, `--server-arg`, `--combine` and `--no-baseline` say on the command line."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    steps: Annotated[list[Annotated[int, Field(ge=1, le=MOST_STEPS)]], Field(min_length=1)]
    baseline: bool = True
    combine: Literal["cross", "zip"] = "cross"
    env: dict[
        Annotated[str, AfterValidator(_variable)],
        Annotated[list[Annotated[str, BeforeValidator(variable_value)]], Field(min_length=1)],
    ] = {}
    server_args: dict[
        Annotated[str, AfterValidator(_sweepable)],
        Annotated[list[Annotated[FlagValue, PlainValidator(flag_value)]], Field(min_length=1)],
    ] = {}


def load_sweep(path: Path) -> Matrix:
    """Reads a sweep file. Raises InputError with file and line."""
    doc = load(path)
    found = check(_SweepFile, doc.value, doc)
    for name, what in _unusable(found.env):
        raise doc.problem(what, "env", name, hint=f"{name}: [1, 4]")
    return Matrix(
        steps=tuple(found.steps),
        baseline=found.baseline,
        env=found.env,
        flags=found.server_args,
        combine=found.combine,
    )
