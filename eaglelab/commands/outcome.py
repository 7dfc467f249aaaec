"""How every command ends: one exit code, one message for a person, one JSON object for a program."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from eaglelab.commands.interrupts import Interrupts
from eaglelab.errors import EaglelabError, Interrupted, OtherMachine, Refused
from eaglelab.masking import Masker
from eaglelab.printable import printable
from eaglelab.say import Say

if TYPE_CHECKING:
    from eaglelab.context import Context

__all__ = ["Outcome", "perform"]

_NOT_BEGUN = "nothing was begun on a host: type the same command again"


@dataclass
class Outcome:
    """What a command found: `hosts` by name, and more top-level entries of the JSON object in `more`.

    `masker` knows the secrets of the hosts at hand. `at_work`, by host: what is being done there under its lock; `recover`, by
    host: the command that mends it if it is left as it is. `resume` is the command that goes on with this run.
    """

    run: str | None = None
    bundle: Path | None = None
    hosts: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    masker: Masker = field(default_factory=Masker)
    exit_code: int = 0
    at_work: dict[str, Context] = field(default_factory=dict)
    recover: dict[str, str] = field(default_factory=dict)
    resume: str = ""

    @property
    def has_bundle(self) -> bool:
        """Whether there is anything in it: a command that only looked leaves nothing."""
        return self.bundle is not None and self.bundle.exists()

    @property
    def shown_bundle(self) -> str:
        """Where it is, for a person: as short as it can be typed from here."""
        if self.bundle is None:
            return ""
        here = Path.cwd()
        return str(self.bundle.relative_to(here) if self.bundle.is_relative_to(here) else self.bundle)

    @property
    def recovery(self) -> str:
        """What to type for every host that is left in the middle of something."""
        return "; ".join(dict.fromkeys(list(self.recover.values())))

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.exit_code == 0,
            "run": self.run,
            "bundle": str(self.bundle) if self.has_bundle else None,
            "hosts": self.hosts,
            "exit_code": self.exit_code,
            **self.more,
        }


def perform(work: Callable[[Outcome, Say], None], *, as_json: bool, debug: bool) -> int:
    """Runs a command and returns its exit code. With `as_json` the last line of stdout is the outcome.

    A traceback is shown only with `debug`; errors of our family say what happened, where, and what to type next.
    """
    outcome, say = Outcome(), Say.on(json=as_json)
    with Interrupts(lambda: _stopping(outcome), lambda: _left(outcome, as_json)) as interrupts:
        try:
            work(outcome, say)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost line: a user gets a sentence
            interrupts.over()
            _failed(outcome, _as_ours(error, outcome), debug)
        finally:
            interrupts.over()
            say.settle()
        if as_json and not _told(sys.stdout, json.dumps(outcome.to_json(), default=str)):
            outcome.exit_code = outcome.exit_code or 1  # whoever reads it would wait for an answer that never came
    return outcome.exit_code


def _told(stream: TextIO | None, text: str) -> bool:
    """Writes a line; False where the stream is closed, its reader gone or its disk full. Nothing more goes there then."""
    if stream is None:
        return False
    try:
        print(text, file=stream, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # for what Python flushes at its end
        return False
    return True


def _as_ours(error: BaseException, outcome: Outcome) -> EaglelabError:
    if isinstance(error, EaglelabError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("interrupted", where=", ".join(outcome.hosts), hint=outcome.recovery or _NOT_BEGUN)
    what = f"unexpected: {type(error).__name__}: {error}"
    return EaglelabError(what, hint="run it again with --debug and report what it prints")


def _stopping(outcome: Outcome) -> None:
    back = any(context.guarded for context in list(outcome.at_work.values()))
    _write(2, f"stopping{' and rolling back' if back else ''}; Ctrl-C again leaves at once\n")


def _left(outcome: Outcome, as_json: bool) -> None:
    """The last words of a process that ends in the middle of something. Python's streams may be held by what hangs."""
    hint = outcome.recovery
    what = "left at once, in the middle of the work on its host" if hint else "left at once"
    outcome.exit_code = 130
    outcome.more["error"] = {"what": what, "where": ", ".join(outcome.recover or outcome.hosts), "hint": hint}
    if sys.stdout is not None and sys.stdout.isatty():
        _write(1, "\x1b[?25h")  # what is redrawn in place has hidden the cursor
    _write(2, f"error: {what}\n" + (f"  hint: {hint}\n" if hint else ""))
    if as_json and sys.stdout is not None:  # else something of ours may have taken its number
        _write(1, json.dumps(outcome.to_json(), default=str) + "\n")


def _write(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode())


def _unreachable(error: BaseException) -> bool:
    """Whether all that a host needs is to be reached again: its server, and a load, go on without a link."""
    from eaglelab.remote.pipe import LinkLost  # here, for commands that know no host

    return isinstance(error.__cause__, LinkLost)


def _failed(outcome: Outcome, error: EaglelabError, debug: bool) -> None:
    outcome.exit_code = error.exit_code
    mask = outcome.masker.text
    if outcome.resume and not isinstance(error, OtherMachine | Refused):
        if error.exit_code in (1, 130):  # else mend it first
            error.hint = "; ".join(filter(None, [error.hint, f"{outcome.resume} goes on with this run"]))
        elif _unreachable(error):
            error.hint += f"; or, once it answers again, {outcome.resume} goes on with what runs there"
    outcome.more["error"] = {"what": mask(error.what), "where": mask(error.where), "hint": mask(error.hint)}
    if debug:
        _told(sys.stderr, printable(mask(traceback.format_exc())))
    _told(sys.stderr, printable(f"error: {mask(str(error))}"))
    if outcome.has_bundle:
        _told(sys.stderr, f"  bundle: {outcome.shown_bundle}")
