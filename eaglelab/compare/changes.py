"""What is not the same between two sides: software, hardware, flags, clocks, what was sent."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglelab.runs.evidence import LoadEvidence, RunEvidence

__all__ = ["Change", "changes"]

_CLOCKS_AGREE = 0.02
"""SM clocks closer than this share are the same."""

_EVERY_START = {
    "host",
    "port",
    "nccl-port",
    "dist-init-addr",
    "random-seed",
    "speculative-num-steps",
    "speculative-num-draft-tokens",
    "speculative-adaptive",
    "speculative-adaptive-config",
    "api-key",
}
"""Options that differ from start to start, or that are the setting itself."""

_SAID_ELSEWHERE = {"model_path", "tp_size", "served_model_name", "speculative_draft_model_path", "version", "status"}
"""What the server says of itself and a fact says already, or that changes from moment to moment."""

_SENT = {
    "prompts": "prompts",
    "num_prompts": "number of requests",
    "random_input_len": "random input length",
    "random_output_len": "random output length",
    "random_range_ratio": "random range",
    "output_len": "output length",
    "temperature": "temperature",
    "seed": "seed",
    "request_rate": "request rate",
    "flush_cache": "cache flushed before a round",
}

_HARMLESS = ("num_prompts",)
"""More of the same requests are as good as fewer."""

_Read = Callable[[RunEvidence], Any]


@dataclass(frozen=True)
class Change:
    """One thing that differs. `unlike`: with it the figures are not like with like, and it is warned of."""

    what: str
    reference: str
    candidate: str
    unlike: bool

    @property
    def words(self) -> str:
        """`sglang 0.5.9 -> 0.5.12`."""
        return f"{self.what} {self.reference} -> {self.candidate}"

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "reference": self.reference,
            "candidate": self.candidate,
            "unlike": self.unlike,
        }


def changes(reference: Sequence[RunEvidence], candidate: Sequence[RunEvidence]) -> tuple[Change, ...]:
    """What differs between two sides; where several runs of a side differ among themselves, all their values stand there.

    What is known of one side only is no difference, but for flags and variables, where it is `not set`.
    """
    return tuple(_changes(reference, candidate))


def _changes(reference: Sequence[RunEvidence], candidate: Sequence[RunEvidence]) -> Iterator[Change]:
    for what, read, unlike in _FACTS:
        yield from _change(what, (_values(reference, read), _values(candidate, read)), unlike)
    yield from _clocks(reference, candidate)
    for name, label in _SENT.items():
        yield from _change(label, (_sent(reference, name), _sent(candidate, name)), unlike=name not in _HARMLESS)
    for what, read_all, both in (
        ("flag", _options, False),
        ("variable", _environment, False),
        ("server's", _server_info, True),
    ):
        sides = [[told for run in side if (told := read_all(run)) is not None] for side in (reference, candidate)]
        if all(sides):
            yield from _entries(what, sides, both=both)
    yield from _workers(reference, candidate)


def _change(what: str, sides: tuple[Iterable[str], Iterable[str]], unlike: bool) -> Iterator[Change]:
    first, second = (", ".join(dict.fromkeys(side)) for side in sides)
    if first and second and first != second:
        yield Change(what, first, second, unlike)


def _values(side: Sequence[RunEvidence], read: _Read) -> list[str]:
    found = [read(run) for run in side]
    return [str(value) for value in found if value not in (None, "")]


def _gpus(run: RunEvidence) -> str | None:
    names = [str(gpu.get("name")) for gpu in _mappings(run.facts.get("gpus"))]
    kinds = dict.fromkeys(names)
    return ", ".join(f"{names.count(name)} x {name}" for name in kinds) or None


def _driver(run: RunEvidence) -> str | None:
    return ", ".join(dict.fromkeys(str(gpu.get("driver_version")) for gpu in _mappings(run.facts.get("gpus")))) or None


def _server(run: RunEvidence) -> Mapping[str, Any]:
    return _mapping(run.inventory.get("server"))


def _client(run: RunEvidence) -> str | None:
    if run.serving is not None:
        return "SGLang's bench_serving"
    return None if run.measured is None else "built-in"


def _patch(run: RunEvidence) -> str | None:
    return next((load.fingerprint["patch"] for load in _loads(run) if load.fingerprint.get("patch")), None)


def _probe(run: RunEvidence) -> str | None:
    """Whether the servers with speculation ran the probe."""
    told = [load.server["env"] for load in _loads(run) if isinstance(load.server.get("env"), dict)]
    return None if not told else "on" if any(env.get("EAGLE3_PROFILE") == "1" for env in told) else "off"


_FACTS: tuple[tuple[str, _Read, bool], ...] = (
    ("sglang", lambda run: run.sglang, False),
    ("GPU", _gpus, True),
    ("figures", lambda run: run.simulated or "of real hardware" if run.finished or not run.empty else None, True),
    ("machine", lambda run: run.facts.get("machine"), True),
    ("hostname", lambda run: run.facts.get("hostname"), False),
    ("driver", _driver, False),
    ("python", lambda run: run.facts.get("python_version"), False),
    ("model", lambda run: _server(run).get("model_path"), True),
    ("draft model", lambda run: _mapping(_server(run).get("speculative")).get("draft_model_path"), False),
    ("tensor parallel size", lambda run: _server(run).get("tp_size"), True),
    ("client", _client, True),
    ("probe", _probe, True),
    ("patch", _patch, False),
)
"""What is read of a run, and whether a difference makes the figures unlike."""


def _loads(run: RunEvidence) -> list[LoadEvidence]:
    """Those with speculation; the baseline where there are no others."""
    speculative = [load for load in run.loads if load.steps != ()]
    return speculative or list(run.loads)


def _clocks(reference: Sequence[RunEvidence], candidate: Sequence[RunEvidence]) -> Iterator[Change]:
    for when in ("before", "after"):
        clocks = [[clock for run in side for clock in _sm_clocks(run, when)] for side in (reference, candidate)]
        if not all(clocks):
            continue
        first, second = (statistics.median(side) for side in clocks)
        if abs(second - first) > _CLOCKS_AGREE * first:
            yield Change(f"SM clock {when}", f"{first:.0f} MHz", f"{second:.0f} MHz", unlike=True)


def _sm_clocks(run: RunEvidence, when: str) -> Iterator[float]:
    """The highest of the GPUs, by measurement: others may be idle."""
    for load in run.loads:
        for told in load.gpus.values():
            clocks = [str(gpu.get("clocks.sm")) for gpu in _mappings(told.get(when))]
            known = [float(clock) for clock in clocks if clock.isdecimal()]
            if known:
                yield max(known)


def _sent(side: Sequence[RunEvidence], name: str) -> list[str]:
    found: list[str] = []
    for run in side:
        workloads = [args for load in run.loads for args in load.workloads.values()]
        workloads = workloads or ([_mapping(run.request.get("vars"))] if run.serving else [])
        found += [_shown(args[name]) for args in workloads if name in args]
    return found


def _workers(reference: Sequence[RunEvidence], candidate: Sequence[RunEvidence]) -> Iterator[Change]:
    sides = [[_worker_files(run) for run in side] for side in (reference, candidate)]
    for name in dict.fromkeys(name for side in sides for files in side for name in files):
        first, second = ([files[name][:12] for files in side if name in files] for side in sides)
        yield from _change(name.rpartition("/")[2], (first, second), unlike=False)


def _worker_files(run: RunEvidence) -> Mapping[str, str]:
    return {name: str(sha) for load in _loads(run) for name, sha in _mapping(load.fingerprint.get("workers")).items()}


def _entries(what: str, sides: Sequence[Sequence[Mapping[str, str]]], *, both: bool) -> Iterator[Change]:
    names = [{name for each in side for name in each} for side in sides]
    for name in sorted(names[0] & names[1] if both else names[0] | names[1]):
        first, second = ([each.get(name, "not set") for each in side] for side in sides)
        yield from _change(f"{what} {name}", (first, second), unlike=False)


def _shared(loads: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What all loads of a run have in common: the rest is what the run itself varied."""
    first, *others = loads
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _options(run: RunEvidence) -> dict[str, str] | None:
    commands = _commands(run)
    return _shared([_of_command(command) for command in commands]) if commands else None


def _commands(run: RunEvidence) -> list[Sequence[str]]:
    told = [load.fingerprint.get("command") for load in _loads(run)]
    return [command for command in told if isinstance(command, list) and command]


def _of_command(command: Sequence[str]) -> dict[str, str]:
    """The options of a command line by name; a switch is `on`."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in command:
        if str(word).startswith("--"):
            name, equals, value = str(word)[2:].partition("=")
            found[name] = [value] if equals else []
        elif name:
            found[name].append(str(word))
    told = ("model-path", "tp-size", "speculative-draft-model-path")  # which stand among the facts
    return {
        name: " ".join(values) or "on"
        for name, values in found.items()
        if name not in _EVERY_START and name not in told
    }


def _environment(run: RunEvidence) -> dict[str, str] | None:
    told = [load.fingerprint["env"] for load in _loads(run) if isinstance(load.fingerprint.get("env"), dict)]
    return _shared([{name: _shown(value) for name, value in env.items()} for env in told]) if told else None


def _server_info(run: RunEvidence) -> dict[str, str] | None:
    """What the server said of itself that was not on its command line: its own choices, such as the attention backend."""
    if not run.server_info:
        return None
    told = {name.replace("-", "_") for command in _commands(run) for name in _of_command(command)}
    told |= {name.replace("-", "_") for name in _EVERY_START} | _SAID_ELSEWHERE
    return {
        name: _shown(value)
        for name, value in run.server_info.items()
        if name not in told and isinstance(value, str | int | float | bool)
    }


def _mapping(found: Any) -> Mapping[str, Any]:
    """As it is, or empty where it is none: a bundle may hold anything."""
    return found if isinstance(found, dict) else {}


def _mappings(found: Any) -> list[Mapping[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)
