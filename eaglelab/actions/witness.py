"""What else tells of a measurement beside its requests: the probe's records, the log, what the server says of itself."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from eaglelab.actions.asking import server_info, server_metrics
from eaglelab.actions.generate import flush_probe
from eaglelab.actions.pull import fetch, lines_from
from eaglelab.actions.serve import end_of, probe_files
from eaglelab.context import Context, LogMark
from eaglelab.profile.bench import BenchResult
from eaglelab.profile.checks import probe_cost
from eaglelab.profile.findings import Finding
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.logfile import read_log, record_lines
from eaglelab.profile.measurement import Evidence, examine
from eaglelab.profile.measurement_set import Measurement
from eaglelab.profile.pooling import rounds_of
from eaglelab.profile.records import CycleBlock, read_records

__all__ = ["Witness", "begin", "examined"]

_CLIENT_BUSY = 0.5
"""Above this share of its time at work the client itself may be what limits a figure (docs/load.md)."""


@dataclasses.dataclass(frozen=True)
class Witness:
    """From where on the log and the probe's files tell of one measurement. `folder`: where in the bundle they go."""

    folder: PurePosixPath
    log: LogMark
    probe: tuple[LogMark, ...]


def begin(context: Context, folder: PurePosixPath, *, going_on: bool) -> Witness:
    """Marks the files, after the probe has written out what came before. `going_on`: as they were marked at its begin."""
    name = str(folder / "marks.json")
    earlier = context.bundle.read(name) if going_on else None
    if earlier is not None:
        return Witness(folder, LogMark(**earlier["log"]), tuple(LogMark(**mark) for mark in earlier["probe"]))
    flush_probe(context)
    log = end_of(context, context.log.path, context.log.inode)
    witness = Witness(folder, log, tuple(end_of(context, path) for path in probe_files(context)))
    marks = {"log": dataclasses.asdict(log), "probe": [dataclasses.asdict(mark) for mark in witness.probe]}
    context.bundle.json(name, marks)
    _note_gpus(context, folder, "before")
    return witness


def _note_gpus(context: Context, folder: PurePosixPath, when: str) -> None:
    """Clocks, temperature and throttling beside the figures: a GPU that was held back explains a slow run."""
    name = str(folder / "gpus.json")
    known = context.bundle.read(name) or {}
    context.bundle.json(name, {**known, when: context.client.call("gpu_state")["gpus"]})


def examined(
    context: Context,
    results: Sequence[BenchResult],
    witness: Witness,
    *,
    one_load: bool,
    flushed: bool,
    random_prompts: bool,
    end: Mapping[str, Any] | None,
) -> list[Measurement]:
    """Every result with all that can be checked of it. `end` is the load's own account of itself."""
    _note_gpus(context, witness.folder, "after")
    blocks, log = _blocks(context, witness), _log(context, witness)
    info, metrics = server_info(context), server_metrics(context)
    about = list(_about_all(results, end))
    found = []
    for result in results:
        seen = result.profiled and result.steps is not None
        known = examine(
            Evidence(
                result,
                blocks if seen else (),
                log.decode if seen else (),
                log.decode_after_idle if seen else 0,
                one_load=one_load,
                flushed=flushed,
                random_prompts=random_prompts,
                server_info=info if seen else None,
                metrics=metrics if seen else None,
            )
        )
        own = [finding for steps, finding in about if steps == result.steps and seen]
        named = dataclasses.replace(result, load=str(witness.folder))
        found.append(Measurement(named, (*known.findings, *own), known.readings, known.setting))
    return found


def _blocks(context: Context, witness: Witness) -> list[CycleBlock]:
    """Those that the probe has written since the mark; the files themselves are kept in the bundle."""
    marks = {mark.path: mark for mark in witness.probe}
    files = []
    for path in probe_files(context):
        name = str(witness.folder / "probe" / PurePosixPath(path).name)
        fetch(context, marks.get(path, LogMark(path, 0)), name)
        files.append(context.bundle.folder / name)
    return read_records(record_lines(files)).blocks


def _log(context: Context, witness: Witness) -> LogReport:
    # Of half a line the figures may be half.
    return read_log(line for line in lines_from(context, witness.log) if line.endswith(b"\n"))


def _about_all(results: Sequence[BenchResult], end: Mapping[str, Any] | None) -> Iterator[tuple[int | None, Finding]]:
    """What several results say together, each with the steps that it is about."""
    rates: dict[tuple[int | None, bool], dict[int, float]] = defaultdict(dict)
    for result in results:
        rates[result.steps, result.profiled] = {each.number: each.tok_s for each in rounds_of(result.requests)}
    counts = sorted({result.steps for result in results if result.steps is not None})
    for steps in counts:
        if rates[steps, True]:
            yield steps, probe_cost(rates[steps, False], rates[steps, True])
    busy = ((end or {}).get("client") or {}).get("busy_share")
    if busy is not None and busy > _CLIENT_BUSY:
        what = f"The client was at work for {100 * busy:.0f} % of the time: figures may be its own limit, not the server's."
        for steps in counts:
            yield steps, Finding("client-limited", "warning", what, {"busy_share": busy})
