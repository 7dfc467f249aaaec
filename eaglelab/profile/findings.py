"""What a check has to say of a measurement, as data: a code to act on, a sentence to read, the numbers behind both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eaglelab.profile.stats import rounded

__all__ = ["Finding", "Number", "Severity", "worst"]

Severity = Literal["ok", "note", "warning", "alarm"]
"""ok: checked and in order. note: to be known. warning: figures are weaker than they look. alarm: they are wrong."""

Number = float | int | str | None

_ORDER: tuple[Severity, ...] = ("ok", "note", "warning", "alarm")


@dataclass(frozen=True)
class Finding:
    """One finding. `numbers` are its evidence; shares are 0 to 1, and a name ends with its unit where it has one."""

    code: str
    severity: Severity
    sentence: str
    numbers: Mapping[str, Number] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values, numbers rounded to 1e-6."""
        return {
            "code": self.code,
            "severity": self.severity,
            "sentence": self.sentence,
            "numbers": {
                name: rounded(value) if isinstance(value, float) else value for name, value in self.numbers.items()
            },
        }


def worst(findings: Iterable[Finding]) -> Severity:
    """The gravest severity among them; `ok` for none."""
    return max((finding.severity for finding in findings), key=_ORDER.index, default="ok")
