"""What a patch knows of SGLang's released workers: known.json of its folder, made by `tests/matrix/matrix.py --known`.

The released files themselves do not come along. Of each there is the sha256, where the patch goes in it, and a short
fingerprint of every line of the entry, so that a file that is not a released one can be compared line by line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from eaglelab.errors import InputError
from eaglelab.patching.marker import split_lines
from eaglelab.patching.plan import FilePlan

__all__ = ["FILE", "Known", "KnownAnchor", "KnownFile", "describe", "load_known"]

FILE = "known.json"
_DIGITS = 6
"""Of a line's sha256: two different lines of one method are taken for the same once in 16 million."""


@dataclass(frozen=True)
class KnownAnchor:
    """`text` is the line that the text of `place` goes before, as it stands; `line` counts from 1."""

    place: str
    line: int
    text: str


@dataclass(frozen=True)
class KnownFile:
    """One worker file without the patch. `start` is the first line of the entry, `prints` are its lines' fingerprints.

    A file that leaves its entry to a base class has neither, and no anchors. `length` is the number of its lines.
    """

    path: str
    sha256: str
    length: int
    entry: str
    start: int
    prints: tuple[str, ...] = field(repr=False)
    anchors: tuple[KnownAnchor, ...]
    releases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """All released files of a patch's targets, each once, in the order of their first release."""

    files: tuple[KnownFile, ...] = ()

    @property
    def releases(self) -> set[str]:
        return {release for file in self.files for release in file.releases}

    def find(self, sha256: str) -> KnownFile | None:
        """The released file with these bytes."""
        return next((file for file in self.files if file.sha256 == sha256), None)

    def of_name(self, path: str) -> list[KnownFile]:
        """The released files that have an entry and are called like `path`; if there are none, all that have an entry."""
        whole = [file for file in self.files if file.prints]
        return [file for file in whole if PurePosixPath(file.path).name == PurePosixPath(path).name] or whole

    @classmethod
    def of(cls, plans: Iterable[tuple[str, FilePlan]]) -> Known:
        """From the plans for released files, each with its release, oldest first."""
        files: dict[str, KnownFile] = {}
        for release, plan in plans:
            file = files.setdefault(plan.original_sha256, describe(plan))
            files[plan.original_sha256] = replace(file, releases=(*file.releases, release))
        return cls(tuple(files.values()))

    @classmethod
    def from_json(cls, text: str) -> Known:
        """The inverse of `to_json`."""
        data = json.loads(text)
        texts, methods = data["texts"], data["methods"]
        return cls(tuple(_read(row, texts, methods) for row in data["files"]))

    def to_json(self) -> str:
        """A row a file; what many files share (a line, the fingerprints of an entry) is kept once and named by its index."""
        texts = sorted({anchor.text for file in self.files for anchor in file.anchors})
        methods = sorted({"".join(file.prints) for file in self.files})
        rows = [_row(file, texts, methods) for file in self.files]
        parts: dict[str, list[Any]] = {"texts": texts, "methods": methods, "files": rows}
        body = ",\n".join(f'"{name}": [\n{_rows(part)}\n]' for name, part in parts.items())
        return f"{{\n{body}\n}}\n"


def load_known(folder: Path) -> Known:
    """What the patch of `folder` knows; a patch of one's own may come without. Raises InputError for a damaged file."""
    file = folder / FILE
    if not file.is_file():
        return Known()
    try:
        return Known.from_json(file.read_text(encoding="utf-8"))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        hint = "python tests/matrix/matrix.py --known writes it anew; without it nothing is compared"
        raise InputError(f"cannot be read: {error}", where=str(file), hint=hint) from error


def describe(plan: FilePlan) -> KnownFile:
    """The file of a plan as it is without the patch, to be compared with a released one."""
    lines = split_lines(plan.original)
    first, last = plan.entry_lines
    return KnownFile(
        path=plan.path,
        sha256=plan.original_sha256,
        length=len(lines),
        entry=plan.entry,
        start=first,
        prints=tuple(_prints(lines[first - 1 : last])) if plan.entry else (),
        anchors=tuple(KnownAnchor(edit.place, edit.line, edit.anchor.decode(errors="replace")) for edit in plan.edits),
    )


def _prints(lines: Iterable[bytes]) -> Iterator[str]:
    for line in lines:
        yield hashlib.sha256(line.rstrip(b"\r\n")).hexdigest()[:_DIGITS]


def _row(file: KnownFile, texts: Sequence[str], methods: Sequence[str]) -> list[Any]:
    anchors = [[anchor.place, anchor.line, texts.index(anchor.text)] for anchor in file.anchors]
    method = methods.index("".join(file.prints))
    return [file.path, file.sha256, " ".join(file.releases), file.length, file.entry, file.start, method, anchors]


def _read(row: Sequence[Any], texts: Sequence[str], methods: Sequence[str]) -> KnownFile:
    path, sha256, releases, length, entry, start, method, anchors = row
    prints = methods[method]
    return KnownFile(
        path=path,
        sha256=sha256,
        length=length,
        entry=entry,
        start=start,
        prints=tuple(prints[at : at + _DIGITS] for at in range(0, len(prints), _DIGITS)),
        anchors=tuple(KnownAnchor(place, line, texts[text]) for place, line, text in anchors),
        releases=tuple(releases.split()),
    )


def _rows(part: Sequence[Any]) -> str:
    return ",\n".join(json.dumps(item, ensure_ascii=False) for item in part)
