"""A server log in the terminal: how it was started, SGLang's decode lines, EAGLE3_PROF blocks, the probe's records."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eaglelab.profile.blocks import Block
from eaglelab.profile.decode_groups import DecodeGroup
from eaglelab.profile.log_report import LogReport
from eaglelab.profile.notable import NotableLine
from eaglelab.profile.tool_lines import ToolFigure
from eaglelab.report.cells import MISSING, figure, ms, note, plain_table, spread, tok_s
from eaglelab.report.profile_view import profile_table

__all__ = ["blocks_table", "log_report"]

_LABELS = {
    "draft": "Draft steps",
    "verify": "Target verify",
    "extend": "Draft re-extend",
    "other": "Other overhead",
    "total": "TOTAL",
}
_SHOWN = 3
_NOTABLE_SHOWN = 10


def blocks_table(blocks: Sequence[Block]) -> RenderableType:
    """The newest blocks, each as printed and as corrected."""
    parts: list[RenderableType] = []
    if len(blocks) > _SHOWN:
        parts += [note(f"{len(blocks)} blocks; the newest {_SHOWN} are shown, --json has them all"), ""]
    for index, block in enumerate(blocks[-_SHOWN:]):
        parts += [""] if index else []
        parts += _block(block)
    return Group(*parts)


def log_report(report: LogReport) -> RenderableType:
    """Everything that a log says about speed."""
    parts: list[RenderableType] = [Text(_head(report), style="bold")]
    if len(report.files) > 1:
        parts += [note(f"lines from {file.first_line}: {file.name}") for file in report.files]
    parts += [note(_start(number, args)) for number, args in enumerate(report.server_starts, start=1)]
    parts += [
        note(f"probe {probe.probe} active: {probe.worker}, rank {probe.rank} of {probe.world}, {probe.clock}")
        for probe in report.canaries
    ]
    if report.decode_lines:
        parts += ["", *_decode(report)]
    if report.blocks:
        parts += ["", blocks_table(report.blocks)]
    if report.profile is not None:
        parts += ["", profile_table(report.profile)]
    if report.tools:
        parts += ["", *_tools(report.tools)]
    if report.notable:
        parts += ["", *_notable(report.notable)]
    if report.empty:
        parts.append(note("nothing in it says anything about speed: no EAGLE3_PROF block, no decode line, no record"))
    parts += [note(f"problem: {text}") for text in report.problems]
    return Group(*parts)


def _block(block: Block) -> list[RenderableType]:
    counts = block.text.counts
    told = [f"{counts[name]} {name.replace('_', ' ')}" for name in ("cycles", "accepted", "timed") if name in counts]
    told += [f"{name.replace('_', ' ')} {counts[name]}" for name in ("steps", "batch_size", "rank") if name in counts]
    source = "the probe's" if block.ours else "hand-made"
    title = f"EAGLE3_PROF block at line {block.text.line} ({source}): {', '.join(told) or 'no counts'}"
    parts: list[RenderableType] = [Text(title, style="bold")]
    if block.printed_ms:
        parts += [_block_phases(block), ""]
    table = plain_table("figure", "as printed", "corrected")
    table.add_row(
        "accept length (tokens a verify)", figure(block.printed_accept_length, 2), figure(block.accept_length, 2)
    )
    table.add_row("tok/s", tok_s(block.printed_tok_s), tok_s(block.tok_s))
    return [*parts, table, note(f"accept length: {block.accept_length_basis}"), *map(note, block.notes)]


def _block_phases(block: Block) -> Table:
    host = bool(block.text.host_ms)
    clock = "GPU ms" if block.ours else "host ms"
    table = plain_table("phase", clock, "printed %", "recomputed %", *(["host ms"] if host else []))
    for name, time in block.printed_ms.items():
        cells = [ms(time), figure(block.text.shares.get(name), 1), figure(block.shares.get(name), 1)]
        cells += [ms(block.text.host_ms.get(name))] if host else []
        table.add_row(_LABELS[name], *cells)
    return table


def _head(report: LogReport) -> str:
    simulated = f"{report.simulated}: " if report.simulated else ""
    sglang = f", SGLang {report.sglang}" if report.sglang else ""
    found = f"decode lines: {report.decode_lines}, EAGLE3_PROF blocks: {report.block_count}"
    return f"{simulated}log of {report.lines} lines{sglang}, {found}"


def _start(number: int, args: dict[str, str]) -> str:
    told = ", ".join(
        f"{name.replace('_', '-')} {value}" for name, value in args.items() if value not in ("None", "False")
    )
    return f"server start {number}: {told}"


def _decode(report: LogReport) -> list[RenderableType]:
    headers = ("running requests", "start", "lines", "tok/s mean", "+/-95%", "median", "accept len", "eager")
    table = plain_table(*headers, text=0)
    for group in report.decode:
        table.add_row(*_decode_row(group))
    left_out = (
        f"{report.decode_after_idle} of {report.decode_lines} decode lines left out: their interval holds idle time"
    )
    return [
        *([table] if report.decode else []),
        note("tok/s: SGLang's own decode lines, all running requests together, wall time"),
        note("accept len: tokens per verify, bonus token included; -: no speculation"),
        note(left_out),
    ]


def _decode_row(group: DecodeGroup) -> list[str]:
    throughput, accepted = group.throughput, group.accept_length
    return [
        str(group.running_requests),
        str(group.start),
        str(group.lines),
        MISSING if throughput is None else tok_s(throughput.mean),
        spread(throughput, 1),
        MISSING if throughput is None else tok_s(throughput.median),
        MISSING if accepted is None else figure(accepted.mean, 2),
        str(group.eager),
    ]


def _tools(figures: Sequence[ToolFigure]) -> list[RenderableType]:
    table = plain_table("source", "lines", "accept len", text=1)
    for each in figures:
        table.add_row(each.source, str(each.lines), figure(each.accept_length, 2))
    return [table, *(note(f"{each.source}: {each.basis}; bonus token included") for each in figures)]


def _notable(lines: Sequence[NotableLine]) -> list[RenderableType]:
    """The first line of each kind, with the number of such lines."""
    told = [f"line {each.line}, {each.count} of {each.code}: {each.text}" for each in lines[:_NOTABLE_SHOWN]]
    more = len(lines) - len(told)
    told += [f"{more} more kinds of line are in --json"] if more > 0 else []
    return [note("lines that may explain the speed:"), *map(note, told)]
