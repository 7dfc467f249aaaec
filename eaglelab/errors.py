"""The one family of errors. Each says what happened, where, and what to type next."""

from __future__ import annotations

__all__ = [
    "AttentionError",
    "EaglelabError",
    "GateMissed",
    "HostError",
    "HostsFailed",
    "InputError",
    "Interrupted",
    "LockLost",
    "NotOurs",
    "OtherMachine",
    "Refused",
]


class EaglelabError(Exception):
    """What happened (`what`), where (`where`: host, file, line) and what to type next (`hint`).

    `exit_code` is what the command ends with. Subclasses set it; nothing else about them differs.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class HostError(EaglelabError):
    """A host or its server did not do what was asked; it is as it was, or rolled back (exit 1)."""


class NotOurs(HostError):
    """A host is not this run's to work on: nothing more is done on it, nothing put back (exit 1)."""


class LockLost(NotOurs):
    """Somebody else took over a host's lock and is at work there (exit 1)."""


class OtherMachine(NotOurs):
    """A run that is taken up again finds another machine, or another SGLang, than it began on (exit 1)."""


class Refused(HostError):
    """A host, once it was read, cannot do what was asked: nothing was changed, and the same run would be refused again (exit 1)."""


class HostsFailed(EaglelabError):
    """Several hosts of one command failed, each in its own way; the exit code is that of the gravest."""

    def __init__(self, what: str, exit_code: int, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.exit_code = exit_code


class InputError(EaglelabError):
    """What the user gave cannot be used; nothing was contacted (exit 2)."""

    exit_code = 2


class AttentionError(EaglelabError):
    """A host is in a state that a person must mend; the hint is the command that mends it (exit 3)."""

    exit_code = 3


class GateMissed(EaglelabError):
    """The run worked and its result misses a limit that the user set (exit 4)."""

    exit_code = 4


class Interrupted(EaglelabError):
    """The user stopped the run; the host is rolled back, or the hint says how it is (exit 130)."""

    exit_code = 130
