"""invoke compare: runs against the first one, with gates. No host is contacted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eaglelab.commands.options import filled
from eaglelab.commands.outcome import Outcome
from eaglelab.compare.comparison import Comparison, Side
from eaglelab.compare.comparison import compare as held_against
from eaglelab.compare.document import document
from eaglelab.compare.explained import explanations
from eaglelab.compare.gate import Gate, parse_gate
from eaglelab.compare.junit import junit_xml
from eaglelab.compare.markdown import markdown
from eaglelab.compare.verdicts import JUDGES, Judge, Verdict, judge
from eaglelab.errors import GateMissed, InputError
from eaglelab.nearest import did_you_mean
from eaglelab.profile.log_report import LogReport
from eaglelab.report.compare_view import comparison_view
from eaglelab.runs.evidence import RunEvidence
from eaglelab.runs.naming import named_run
from eaglelab.runs.server_log import log_of
from eaglelab.say import Say

__all__ = ["compare"]

_USAGE = "invoke compare A B: the first is the reference"


def compare(
    logs: Path,
    names: Sequence[str],
    gates: Sequence[str],
    how: str,
    files: tuple[str | None, str | None],
    outcome: Outcome,
    say: Say,
) -> None:
    """Compares the runs `names` with the first of them, or the hosts of the only one.

    `how` is a `Judge`; `files` are those for JUnit XML and Markdown. Raises GateMissed after all was shown and written.
    """
    junit, summary = filled(files[0], "--junit"), filled(files[1], "--markdown")
    limits, judged_by = [parse_gate(gate) for gate in gates], _judge(how)
    if junit and not limits:
        raise InputError("JUnit XML is of gates, and none is given", where="--junit", hint="--gate 'tok_s >= -3%'")
    reference, *candidates = _sides(logs, names)
    judged: list[tuple[Comparison, Sequence[Verdict]]] = []
    for candidate in candidates:
        comparison = held_against(reference, candidate)
        judged.append((comparison, judge(limits, comparison, judged_by)))
    read: dict[int, LogReport | None] = {}

    def log_once(run: RunEvidence) -> LogReport | None:
        """The reference is held against each candidate, and a log may be long."""
        if id(run) not in read:
            read[id(run)] = log_of(run.loads)
        return read[id(run)]

    why = [explanations(comparison, log_once) for comparison, _ in judged]
    for number, (comparison, verdicts) in enumerate(judged):
        if number:
            say.line("")
        say.show(comparison_view(comparison, verdicts, why[number]))
    outcome.more["compare"] = document(judged, why)
    if junit:
        _write(junit, junit_xml(judged), "--junit", say)
    if summary:
        _write(summary, markdown(judged, why), "--markdown", say)
    _missed(judged, limits)


def _judge(how: str) -> Judge:
    for known in JUDGES:
        if how == known:
            return known
    raise InputError(f"'{how}' is no way to judge a gate", where="--judge", hint=did_you_mean(how, JUDGES))


def _sides(logs: Path, names: Sequence[str]) -> list[Side]:
    if not names:
        raise InputError("no run is named", hint=f"{_USAGE}; invoke logs --runs lists them")
    found = [[named_run(logs, part.strip()) for part in name.split(",")] for name in names]
    if len(names) == 1:
        hosts = found[0][0]
        if len(found[0]) > 1 or len(hosts) < 2:
            raise InputError(f"'{names[0]}' alone cannot be compared: one side is named", hint=_USAGE)
        return [Side(_label(number), (run,)) for number, run in enumerate(hosts)]
    return [Side(_label(number), tuple(map(_alone, runs))) for number, runs in enumerate(found)]


def _label(number: int) -> str:
    """A to Z, then 27 and so on."""
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def _alone(hosts: Sequence[RunEvidence]) -> RunEvidence:
    if len(hosts) > 1:
        names = ", ".join(f"{run.run}:{run.host}" for run in hosts)
        raise InputError(f"run {hosts[0].run} is of several hosts", hint=f"name one: {names}")
    return hosts[0]


def _write(name: str, text: str, option: str, say: Say) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write it: {error.strerror}", where=name, hint=f"{option} takes a file") from error
    say.line(f"written: {name}")


def _missed(judged: Sequence[tuple[Comparison, Sequence[Verdict]]], gates: Sequence[Gate]) -> None:
    missed = [(comparison, verdict) for comparison, verdicts in judged for verdict in verdicts if not verdict.held]
    if not missed:
        return
    count = len({verdict.gate for _, verdict in missed})
    said = "; ".join(
        f"{comparison.candidate.label}, {verdict.name}: {verdict.what}" for comparison, verdict in missed[:3]
    )
    more = f"; and {len(missed) - 3} more" if len(missed) > 3 else ""
    raise GateMissed(f"{count} of {len(gates)} gate{'' if len(gates) == 1 else 's'} missed: {said}{more}")
