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
from eaglelab.say import Say

__all__ = ["Outcome", "perform"]


@dataclass
class Outcome:
    """What a command found: `hosts` by name, and more top-level entries of the JSON object in `more`."""

    run: str | None = None
    bundle: Path | None = None
    hosts: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    exit_code: int = 0

    def to_json(self) -> dict[str, Any]:
        bundle = str(self.bundle) if self.bundle else None
        return {
            "ok": self.exit_code == 0,
            "run": self.run,
            "bundle": bundle,
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
        _failed(outcome, Interrupted("interrupted before a host was changed"), debug)
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
    outcome.more["error"] = {"what": error.what, "where": error.where, "hint": error.hint}
    if debug:
        traceback.print_exc(file=sys.stderr)
    print(f"error: {error}", file=sys.stderr)
    if outcome.bundle and outcome.bundle.exists():
        print(f"  bundle: {outcome.bundle}", file=sys.stderr)


@contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """SIGTERM takes the way of Ctrl-C: whoever ends a run wants the host put back."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
