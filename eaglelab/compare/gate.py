"""Gates: limits on how a figure of the candidate may differ from the reference's.

    METRIC [@SETTING] >= LIMIT        tok_s >= -3%          no more than 3 % slower, at every setting
    METRIC [@SETTING] <= LIMIT        verify_ms@2 <= +0.5   verify at most 0.5 ms longer, at 2 steps

    METRIC   a name in `METRICS`
    SETTING  terms with commas between: 2 or steps=2, baseline, batch=4, with=VARIATION ("in quotes" if it has a blank)
    LIMIT    a signed number: with % of the reference's figure, else a difference in the figure's own unit

Blanks may stand between all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from eaglelab.compare.metrics import METRICS, Metric
from eaglelab.errors import InputError
from eaglelab.nearest import did_you_mean
from eaglelab.profile.setting_key import SettingKey

__all__ = ["Gate", "parse_gate"]

_HINT = "such as --gate 'tok_s >= -3%', --gate 'verify_ms@2,batch=1 <= +0.5'"
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_VALUE = re.compile(r'"[^"]*"|[^\s,"<>]+')


@dataclass(frozen=True)
class Gate:
    """`text` as it was given. A term of the setting that is not named is None and holds for all; `baseline` True: without
    speculation. `least`: the limit is a lower one. `relative`: it is in percent of the reference's figure."""

    text: str
    metric: Metric
    least: bool
    limit: float
    relative: bool
    steps: int | None = None
    baseline: bool = False
    batch: int | None = None
    variation: str | None = None

    def concerns(self, key: SettingKey, batch: int | None) -> bool:
        """Whether it is about a setting (`batch` None: at any concurrency). One that names no steps passes over the baseline
        where that has no such figure."""
        if self.baseline or self.steps is not None:
            fits = key.steps == self.steps
        else:
            fits = key.steps is not None or not self.metric.speculative
        return fits and (None in (batch, self.batch) or batch == self.batch) and self.variation in (None, key.variation)

    def allows(self, change: float) -> bool:
        """Whether a difference (percent or the unit's own) is within the limit."""
        return change >= self.limit if self.least else change <= self.limit


def parse_gate(text: str) -> Gate:
    """Reads one gate. Raises InputError that shows the place, with the nearest name where one is mistyped."""
    return _Reader(text).gate()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def gate(self) -> Gate:
        metric = self._metric()
        setting = self._setting() if self._take("@") else {}
        least = self._comparison()
        limit, relative = self._limit()
        self._blank()
        if self.at < len(self.text):
            raise self._wrong(f"nothing more is read after the limit, not '{self.text[self.at :]}'")
        return Gate(self.text, metric, least, limit, relative, **setting)

    def _metric(self) -> Metric:
        start, name = self._match(_WORD)
        if name not in METRICS:
            raise self._wrong(
                f"'{name}' is no figure" if name else "it begins with a figure",
                did_you_mean(name, METRICS, label="figures"),
                start,
            )
        return METRICS[name]

    def _setting(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while True:
            start = self.at
            term = self._term()
            if term.keys() & found.keys() or {"steps", "baseline"} <= {*term, *found}:
                raise self._wrong("this is said twice", at=start)
            found.update(term)
            if not self._take(","):
                return found

    def _term(self) -> Mapping[str, Any]:
        start, name = self._match(_VALUE)
        name, equals, value = name.partition("=")
        if name == "baseline" and not equals:
            return {"baseline": True}
        if name.isascii() and name.isdecimal() and not equals:
            return {"steps": int(name)}
        if name not in _TERMS:
            hint = did_you_mean(name, (*_TERMS, "baseline"), label="terms")
            raise self._wrong(f"'{name}' is no term of a setting" if name else "a setting stands after @", hint, start)
        if equals and not value:
            _, value = self._match(_VALUE)
        field, read = _TERMS[name]
        try:
            return {field: read(value.strip('"'))}
        except ValueError:
            raise self._wrong(f"{name}= takes a value such as {_EXAMPLES[name]}", at=start) from None

    def _comparison(self) -> bool:
        self._blank()
        sign = self.text[self.at : self.at + 2]
        if sign not in (">=", "<="):
            raise self._wrong("here stands >= or <=")
        self.at += 2
        return sign == ">="

    def _limit(self) -> tuple[float, bool]:
        start, number = self._match(_NUMBER)
        if not number:
            raise self._wrong("here stands a limit: a number with its sign, with % or in the figure's unit", at=start)
        if number[0] not in "+-" and float(number) != 0:
            what = f"a limit is a difference from the reference, so it has a sign: +{number} or -{number}"
            raise self._wrong(what, at=start)
        return float(number), self._take("%")

    def _take(self, sign: str) -> bool:
        self._blank()
        taken = self.text.startswith(sign, self.at)
        self.at += len(sign) * taken
        return taken

    def _match(self, pattern: re.Pattern[str]) -> tuple[int, str]:
        self._blank()
        start = self.at
        match = pattern.match(self.text, start)
        self.at = match.end() if match else start
        return start, match[0] if match else ""

    def _blank(self) -> None:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1

    def _wrong(self, what: str, hint: str = _HINT, at: int | None = None) -> InputError:
        place = self.at if at is None else at
        return InputError(f"{what}\n    {self.text}\n    {' ' * place}^", where="--gate", hint=hint)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError
    return int(text)


def _text(text: str) -> str:
    return text


_TERMS: Mapping[str, tuple[str, Callable[[str], int | str]]] = {
    "steps": ("steps", _count),
    "batch": ("batch", _count),
    "with": ("variation", _text),
}
_EXAMPLES = {"steps": "steps=2", "batch": "batch=4", "with": 'with="NCCL_ALGO=Ring"'}
