"""How every command ends: one exit code, one message for a person, one JSON object for a program."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from eaglelab.errors import EaglelabError, Interrupted
from eaglelab.masking import Masker
from eaglelab.say import Say

__all__ = ["Outcome", "perform"]


@dataclass
class Outcome:
    """What a command found: `hosts` by name, and more top-level entries of the JSON object in `more`.

    `masker` knows the secrets of the host at hand.
    """

    run: str | None = None
    bundle: Path | None = None
    hosts: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    masker: Masker = field(default_factory=Masker)
    exit_code: int = 0

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
    try:
        with _terminate_like_interrupt():
            work(outcome, say)
    except EaglelabError as error:
        _failed(outcome, error, debug)
    except KeyboardInterrupt:
        _failed(outcome, Interrupted("interrupted", hint="invoke status shows what is there"), debug)
    except Exception as error:  # noqa: BLE001 - the outermost line: a user gets a sentence, a developer the traceback
        _failed(
            outcome,
            EaglelabError(
                f"unexpected: {type(error).__name__}: {error}",
                hint="run it again with --debug and report what it prints",
            ),
            debug,
        )
    finally:
        say.settle()
    if as_json:
        print(json.dumps(outcome.to_json(), default=str))
    return outcome.exit_code


def _failed(outcome: Outcome, error: EaglelabError, debug: bool) -> None:
    outcome.exit_code = error.exit_code
    mask = outcome.masker.text
    outcome.more["error"] = {"what": mask(error.what), "where": error.where, "hint": mask(error.hint)}
    if debug:
        print(mask(traceback.format_exc()), file=sys.stderr)
    print(f"error: {mask(str(error))}", file=sys.stderr)
    if outcome.has_bundle:
        print(f"  bundle: {outcome.shown_bundle}", file=sys.stderr)


@contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """SIGTERM, and a terminal that closes, take the way of Ctrl-C: whoever ends a run wants the host put back.

    Under nohup, which ignores a terminal's end, that stays ignored.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
