"""What an experiment found: a JSON file for each part, checks over them, and one table of all."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Check", "Data", "Results", "as_json", "missed", "table"]

Data = dict[str, Any]


@dataclass(frozen=True)
class Check:
    """One figure against its goal. `met` None: a figure without a goal, or one that was not measured."""

    figure: str
    goal: str
    measured: str
    met: bool | None


class Results:
    """`folder/PART.json` for each part that is done, `PART.failed.json` for one that was tried in vain."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def done(self, part: str) -> bool:
        return self._file(part).exists()

    def save(self, part: str, data: Data) -> None:
        """Written whole or not at all."""
        self._write(self._file(part), data)
        self._failed(part).unlink(missing_ok=True)

    def fail(self, part: str, why: str, seconds: float) -> None:
        self._write(self._failed(part), {"why": why, "seconds": round(seconds, 1)})

    def load(self, known: Collection[str] | None = None) -> dict[str, Data]:
        """The data of all parts that are done, by name; of the `known` ones where other files may lie among them.

        Raises ValueError, with its name, for a file that is no JSON.
        """
        files = sorted(file for file in self._folder.glob("*.json") if not file.name.endswith(".failed.json"))
        return {file.stem: _data(file) for file in files if known is None or file.stem in known}

    def failures(self) -> dict[str, str]:
        files = sorted(self._folder.glob("*.failed.json"))
        return {file.name.removesuffix(".failed.json"): json.loads(file.read_text())["why"] for file in files}

    def _file(self, part: str) -> Path:
        return self._folder / f"{part}.json"

    def _failed(self, part: str) -> Path:
        return self._folder / f"{part}.failed.json"

    @staticmethod
    def _write(file: Path, data: Data) -> None:
        new = file.with_suffix(".tmp")
        new.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        new.replace(file)


def _data(file: Path) -> Data:
    try:
        return dict(json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file.name}: {error}") from error


def missed(checks: Mapping[str, Sequence[Check]]) -> bool:
    """Whether a goal was missed."""
    return any(check.met is False for each in checks.values() for check in each)


def table(
    checks: Mapping[str, Sequence[Check]], failures: Mapping[str, str], skipped: Mapping[str, str], about: str
) -> str:
    """`summary.md`: every figure beside its goal, by experiment, then what is missing and why."""
    lines = ["# What was measured", "", about, ""]
    for experiment, found in checks.items():
        if found:
            lines += [f"## {experiment}", "", "| figure | goal | measured | met |", "|---|---|---|---|"]
            lines += [f"| {c.figure} | {c.goal} | {c.measured} | {_word(c.met)} |" for c in found] + [""]
    for title, missing in (("Tried in vain", failures), ("Not run", skipped)):
        if missing:
            lines += [f"## {title}", "", *(f"- {part}: {why}" for part, why in missing.items()), ""]
    return "\n".join(lines)


def _word(met: bool | None) -> str:
    return "-" if met is None else "yes" if met else "**no**"


def as_json(checks: Mapping[str, Sequence[Check]]) -> dict[str, Any]:
    """The table as data."""
    return {experiment: [asdict(check) for check in found] for experiment, found in checks.items()}
