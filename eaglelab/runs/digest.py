"""A bundle's rows, from its small files alone: a listing never reads the requests or the probe's records."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eaglelab.profile.definitions import PHASES
from eaglelab.runs.headline import headline
from eaglelab.runs.rows import RunRow, SettingRow

__all__ = ["REQUEST", "Stamp", "digest", "stamp"]

REQUEST = "request.json"
_READ = (REQUEST, "result.json", "events.jsonl")
"""What changes while a run is at work: the others are written before the last of these."""

_WORKLOAD = (
    "prompts",
    "random_input_len",
    "random_output_len",
    "random_range_ratio",
    "output_len",
    "temperature",
    "request_rate",
    "tokens",
)
"""Variables of a run that change what its requests are."""

Stamp = str
Json = Mapping[str, Any]


def stamp(folder: Path) -> Stamp | None:
    """Changes when what `digest` reads does; None for a folder that is none of a run. Costs a few file look-ups."""
    own = _stats(folder)
    if not own or own[0][0] != REQUEST:
        return None
    if len(own) == 1:  # of several hosts, each with a folder of its own
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            own += [(entry.name, *each) for entry in entries if entry.is_dir() for each in _stats(Path(entry.path))]
    return json.dumps(sorted(own))


def _stats(folder: Path) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for name in _READ:
        try:
            stat = (folder / name).stat()
        except OSError:
            continue
        found.append((name, stat.st_mtime_ns, stat.st_size))
    return found


def digest(folder: Path) -> tuple[RunRow, ...] | None:
    """A row for each host of a run; None where its request.json is damaged."""
    request = _json(folder / REQUEST)
    hosts = request.get("hosts")
    if not isinstance(request.get("command"), str) or not isinstance(hosts, list) or not hosts:
        return None
    if not all(isinstance(host, str) and Path(host).name == host for host in hosts):
        return None
    folders = {host: folder / host if len(hosts) > 1 else folder for host in hosts}
    return tuple(_row(folder.name, host, request, path) for host, path in folders.items())


def _row(run: str, host: str, request: Json, folder: Path) -> RunRow:
    result, facts = _json(folder / "result.json"), _json(folder / "facts.json")
    server = _mapping(_json(folder / "inventory.json"), "server")
    finished = result.get("ok") is True
    gpus = [gpu for gpu in _list(facts, "gpus") if isinstance(gpu, dict)]
    given = _mapping(request, "vars")
    names = [str(gpu.get("name")) for gpu in gpus]
    drivers = dict.fromkeys(str(gpu.get("driver_version")) for gpu in gpus)
    label = _mapping(_json(folder / "server_info.json"), "simulated").get("label")
    simulated = str(label) if label else None
    try:
        settings = tuple(replace(each, simulated=simulated) for each in _settings(result)) if finished else ()
        said = headline(result) if finished else _unfinished(run, request, folder)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError):
        settings, said = (), "done, and its result.json is damaged"
    return RunRow(
        run=run,
        host=host,
        command=str(request["command"]),
        began=_began(folder / "events.jsonl"),
        finished=finished,
        model=_text(server.get("model_path")),
        draft=_text(_mapping(server, "speculative").get("draft_model_path")),
        sglang=_text(facts.get("sglang_version")),
        gpu=", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or None,
        driver=", ".join(drivers) or None,
        tp=server["tp_size"] if isinstance(server.get("tp_size"), int) else None,
        workload=" ".join(f"{name}={given[name]}" for name in _WORKLOAD if name in given),
        simulated=simulated,
        headline=said,
        bundle=str(folder),
        settings=settings,
    )


def _settings(result: Json) -> Iterator[SettingRow]:
    """With the ratio to the baseline, of the same variation or else of none."""
    rows = [*_measured(result), *_served(result), *_profiled(result)]
    rates = {(row.source, row.batch, row.variation): row.tok_s for row in rows if row.steps is None}
    for row in rows:
        base = rates.get((row.source, row.batch, row.variation)) or rates.get((row.source, row.batch, ""))
        known = row.steps is not None and base and row.tok_s
        yield replace(row, baseline_ratio=row.tok_s / base) if known and row.tok_s and base else row


def _measured(result: Json) -> Iterator[SettingRow]:
    places: dict[tuple[Any, ...], SettingRow] = {}
    for found in result.get("measurements") or ():
        place = (found["steps"], found["variation"], found["batch"])
        row = places.get(place, SettingRow("requests", *place))
        if not found["profiled"]:
            summary = found["summary"]
            rate = summary["throughput"] or {}
            row = replace(row, **_rate(rate.get("value"), rate.get("ci95")), accept_length=summary["accept_length"])
        places[place] = replace(row, **_phases(found["setting"])) if found["setting"] else row
    yield from places.values()


def _served(result: Json) -> Iterator[SettingRow]:
    for found in result.get("settings") or ():
        rate, accepted = (found["figures"][name] or {} for name in ("output_throughput", "accept_length"))
        yield SettingRow(
            "bench_serving",
            found["steps"],
            found["variation"],
            found["concurrency"],
            accept_length=accepted.get("mean") if found["steps"] else None,
            **_rate(rate.get("mean"), rate.get("ci95")),
        )


def _profiled(result: Json) -> Iterator[SettingRow]:
    for found in (result.get("profile") or {}).get("settings") or ():
        rate, accepted = found["tok_s"] or {}, found["acceptance"] or {}
        yield SettingRow(
            "profile",
            found["steps"],
            "",
            found["batch_size"],
            accept_length=accepted.get("accept_length"),
            **_rate(rate.get("in_all"), rate.get("in_all_ci95")),
            **_phases(found),
        )


def _rate(value: float | None, ci95: list[float] | None) -> dict[str, Any]:
    low, high = ci95 or (None, None)
    return {"tok_s": value, "tok_s_low": low, "tok_s_high": high}


def _phases(setting: Json) -> dict[str, Any]:
    phases = setting["phases"]
    return {f"{name}_ms": phases[name]["event_ms"]["mean"] for name in PHASES if name in phases}


def _unfinished(run: str, request: Json, folder: Path) -> str:
    """The task that was the last to begin, and what goes on with it."""
    began = ""
    for event in _events(folder / "events.jsonl"):
        if event.get("state") == "started":
            began = str(event.get("task"))
    if not began:
        return "nothing was begun"
    playbook = [str(request.get("playbook"))] if request["command"] == "play" else []
    line = shlex.join(["invoke", str(request["command"]), *playbook, "--resume", run])
    return f"stopped at '{began}'; {line} goes on with it"


def _events(path: Path) -> Iterator[Json]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                event = _object(line)
                if event:
                    yield event
    except OSError:
        return


def _began(path: Path) -> float | None:
    time = next(_events(path), {}).get("time")
    return float(time) if isinstance(time, int | float) else None


def _json(path: Path) -> Json:
    """Empty where there is none, or none that can be read."""
    try:
        return _object(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return {}


def _object(text: str) -> Json:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _mapping(found: Json, name: str) -> Json:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def _list(found: Json, name: str) -> list[Any]:
    value = found.get(name)
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return None if value in (None, "") else str(value)
