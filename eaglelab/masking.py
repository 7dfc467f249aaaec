"""Keeps secrets out of everything that is printed or written: by name, by value and by shape."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from eaglelab.masked_bytes import Suspects

__all__ = ["MASK", "Masker", "is_secret_name"]

_LARGE = 1 << 14
"""Below so many bytes all of it is looked through as it is."""

MASK = "***"

_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE")
_NAME = r"(?:(?:api|access|secret|private)[-_]?key|(?:hf|auth|access|api)[-_]token|secret|passw(?:or)?d|passphrase)"
_SECRET_FLAG = re.compile(_NAME + "$")
_VALUE = (
    # Quoted, quoted within quotes, a list, a word. A line may have been cut before the closing mark.
    r"(?P<value>\\?'(?:\\.|[^'\\\n])*(?:\\?'|$)|\\?\"(?:\\.|[^\"\\\n])*?(?:\\?\"|$)|\[[^\]\n]*(?:\]|$)"
    r"|(?!(?:None|null|True|False|true|false)\b)[^\s,;)&'\"\\\]}]+)"
)
_KEYS = (
    *(f"{of}{dash}key" for of in ("api", "access", "private") for dash in ("", "-", "_")),
    *(f"{of}{dash}token" for of in ("hf", "auth", "access", "api") for dash in ("-", "_")),
    *("secret", "passw", "passphrase"),
)
# What a server that others started may have in its log or command line: the value is not known, its place is.
# Lower-case `token` alone is left as it is: SGLang's own lines count tokens with it. Names and dashes have bounds, or a
# long run of their letters would be looked through again from each of them.
# Each with sets of words, of each of which one must be there (lower-case ones in any case): most of a log has none.
_SHAPES: tuple[tuple[tuple[tuple[str, ...], ...], tuple[re.Pattern[str], ...]], ...] = (
    (
        (("key", "_token", "-token", "secret", "pass"), _KEYS),
        (
            re.compile(rf"(?P<before>(?i:{_NAME})\\?['\"]?\s*(?:[=:]|%3[AaDd])\s*)(?!Bearer\b|Basic\b){_VALUE}"),
            re.compile(
                rf"(?P<before>(?<!-)-{{2,}}(?:\w[\w-]{{0,100}})?(?i:{_NAME})\\?['\"]?(?:,\s*|\s+))(?!-){_VALUE}"
            ),
        ),
    ),
    ((("Bearer",),), (re.compile(r"(?P<before>\bBearer(?:\s+|%20|\+))(?P<value>[^\s'\",;\\]+)"),)),
    (
        (("authorization",),),
        (re.compile(r"(?P<before>(?i:\bAuthorization)\\?['\"]?\s*[=:]\s*\\?['\"]?Basic\s+)(?P<value>[^\s'\",;\\]+)"),),
    ),
    ((("://",),), (re.compile(r"(?P<before>://[^/\s:@]*:)(?P<value>[^/\s@]+)(?=@)"),)),
    (
        (("KEY", "TOKEN", "SECRET", "PASS"),),
        (
            re.compile(
                r"(?P<before>\b[A-Z0-9_]{0,100}(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)[A-Z0-9_]{0,100}"
                rf"\\?['\"]?(?:=|:\s+)){_VALUE}"
            ),
        ),
    ),
)


def is_secret_name(name: str) -> bool:
    """Whether a variable (`*KEY*`, `*TOKEN*`, `*SECRET*`, `*PASSWORD*`) or a flag (`api-key`) holds a secret."""
    pattern = _SECRET_VARIABLE if name == name.upper() else _SECRET_FLAG
    return pattern.search(name) is not None


class Masker:
    """Replaces secrets by `***`.

    `names`: variables that are secret beside those that `is_secret_name` knows.
    `values`: texts that are replaced wherever they stand; empty ones are ignored.
    """

    def __init__(self, names: Iterable[str] = (), values: Iterable[str] = ()) -> None:
        self._names, self._plain = frozenset(names), tuple(values)
        spellings = {form for value in self._plain if value for form in _spellings(value)}
        # The longest first: a secret may be part of another.
        self._forms = sorted(spellings, key=lambda form: (-len(form), form))
        self._values = re.compile("|".join(map(re.escape, self._forms))) if self._forms else None
        self._suspects: Suspects | None = None
        self.longest = max((len(form.encode("utf-8", "surrogateescape")) for form in self._forms), default=0)
        """Bytes that a known value has at most, however it is spelt."""

    @classmethod
    def of_all(cls, maskers: Iterable[Masker]) -> Masker:
        """One that masks what any of `maskers` does."""
        known = list(maskers)
        return cls(
            (name for masker in known for name in masker._names), (value for masker in known for value in masker._plain)
        )

    def is_secret(self, name: str) -> bool:
        """Whether the value of a variable or flag of this name is masked."""
        return name in self._names or is_secret_name(name)

    def text(self, text: str) -> str:
        """`text` without known values, API keys, bearer tokens and `NAME_TOKEN=...` assignments."""
        if self._values is not None:
            text = self._values.sub(MASK, text)
        if not any(_possible(text)):
            return text
        return "".join(map(_without_shapes, text.splitlines(keepends=True)))

    def data(self, data: bytes) -> bytes:
        """As `text`, of whole lines of a log, which may be no UTF-8: such bytes stay as they are."""
        if len(data) < _LARGE:
            return self._decoded(data)
        if self._suspects is None:
            from eaglelab.masked_bytes import Suspects  # here, for all who mask no log

            words = {word for sets, _ in _SHAPES for words in sets for word in words}
            self._suspects = Suspects(words, self._forms)
        parts, at = [], 0
        for first, last in self._suspects.spans(data):
            parts += [data[at:first], self._decoded(data[first:last])]
            at = last
        return b"".join([*parts, data[at:]]) if parts else data

    def _decoded(self, data: bytes) -> bytes:
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def mapping(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of `data` in which secret keys have `***` as value and every text is masked, at any depth."""
        return {
            key: MASK if self.is_secret(key) and value not in (None, "") else self._value(value)
            for key, value in data.items()
        }

    def argv(self, argv: Sequence[str]) -> list[str]:
        """A command line in which the word after a secret flag (or after its `=`) is `***`."""
        masked: list[str] = []
        hide = False
        for word in argv:
            flag, equals, _ = word.partition("=")
            secret = word.startswith("--") and self.is_secret(flag)
            masked.append(MASK if hide else f"{flag}={MASK}" if secret and equals else self.text(word))
            hide = secret and not equals
        return masked

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self.mapping(value)
        if isinstance(value, list | tuple):
            if all(isinstance(item, str) for item in value):
                return self.argv(value)  # it may be a command line
            return [self._value(item) for item in value]
        return value


def _without_shapes(line: str) -> str:
    for shape in _possible(line):
        line = shape.sub(rf"\g<before>{MASK}", line)
    return line


def _possible(text: str) -> Iterator[re.Pattern[str]]:
    """The shapes that `text` may have."""
    lower = text.lower()
    for sets, shapes in _SHAPES:
        if all(any(word in (lower if word.islower() else text) for word in words) for words in sets):
            yield from shapes


def _spellings(value: str) -> set[str]:
    """As it is, and as it stands inside JSON (once, or in a text of it), Python, a shell command and a URL.

    Logs are masked line by line, so the lines of a long value, such as a PEM file's, count for themselves.
    """
    forms = {value, repr(value)[1:-1], shlex.quote(value), quote(value, safe=""), quote_plus(value)}
    for spelt in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        forms |= {spelt, json.dumps(spelt)[1:-1]}
    return forms | {line.strip() for line in value.splitlines() if len(line.strip()) >= 8}
