"""Plans the patch of one file: bytes in, line-anchored edits and the patched bytes out. Nothing is read or written."""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from eaglelab.patching.anchors import Anchor, find_anchors
from eaglelab.patching.errors import PatchRefused
from eaglelab.patching.locate import has_no_entry, locate
from eaglelab.patching.marker import is_marked, mark, split_lines, strip
from eaglelab.patching.safety import check_patched, refuse_strangers, without_patch
from eaglelab.patching.source import Source
from eaglelab.patching.spec import PatchSpec

__all__ = ["Edit", "FilePlan", "PatchRefused", "plan_file", "strip"]

CONTEXT = 2


@dataclass(frozen=True)
class Edit:
    """Lines to insert before one line of the original.

    `line` counts from 1 in the original and `anchor` is that line; `text` are the lines to insert, with the anchor's
    indentation and the marker. None of them carries its newline.
    """

    line: int
    anchor: bytes
    text: tuple[bytes, ...]
    place: str


@dataclass(frozen=True)
class FilePlan:
    """What the patch does to one file.

    `found` is the file as it was read and `original` the same without this patch; they differ only where some version
    of the patch is in already. `state` is "already" where `found` is `patched`, and "nothing" where the file has no entry
    to patch: all three are the same bytes then. In both nothing need be done. `entry_lines` are the entry's first and
    last line in `original`; zeros where there is none.
    """

    path: str
    worker_class: str
    entry: str
    entry_lines: tuple[int, int]
    state: Literal["patch", "already", "nothing"]
    found: bytes = field(repr=False)
    original: bytes = field(repr=False)
    patched: bytes = field(repr=False)
    edits: tuple[Edit, ...]
    notes: tuple[str, ...]
    patch_id: str

    @property
    def found_sha256(self) -> str:
        """Of the file as it was read: what a swap must still find."""
        return hashlib.sha256(self.found).hexdigest()

    @property
    def original_sha256(self) -> str:
        """Of the file without this patch: where a rollback ends."""
        return hashlib.sha256(self.original).hexdigest()

    @property
    def patched_sha256(self) -> str:
        """Of the file with this patch."""
        return hashlib.sha256(self.patched).hexdigest()

    def sed_ranges(self) -> list[tuple[int, int]]:
        """Line ranges of the found file, both ends included, that show every anchor with two lines around it."""
        total = len(split_lines(self.found))
        ranges: list[tuple[int, int]] = []
        for number in sorted(self._found_lines()):
            first, last = max(1, number - CONTEXT), min(total, number + CONTEXT)
            if ranges and first <= ranges[-1][1] + 1:
                first = ranges.pop()[0]
            ranges.append((first, last))
        return ranges

    def check_readback(self, lines: Mapping[int, bytes]) -> None:
        """Compares lines read back from the host, by number in the found file, with the anchors.

        Raises PatchRefused where one is missing or differs.
        """
        for number, edit in self._found_lines().items():
            read = lines.get(number)
            if read is None or read.rstrip(b"\r\n") != edit.anchor:
                is_now = "was not read back" if read is None else f"is now {read.decode(errors='replace').strip()!r}"
                raise PatchRefused(
                    f"line {number} {is_now}; the plan was made for the line below",
                    path=self.path,
                    looked_at=[(number, edit.anchor.decode(errors="replace"))],
                    hint="the file changed since it was read: run the command again",
                )

    def diff(self) -> str:
        """Unified diff from the found to the patched file; empty where nothing changes."""
        before, after = (_shown(data) for data in (self.found, self.patched))
        path = self.path.lstrip("/")
        return "".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}"))

    def _found_lines(self) -> dict[int, Edit]:
        """The edits by the line number that their anchor has in the found file (several edits may share an anchor)."""
        numbered = enumerate(split_lines(self.found), start=1)
        kept = [number for number, line in numbered if not is_marked(line, self.patch_id)]
        return {kept[edit.line - 1]: edit for edit in self.edits}


def plan_file(source: bytes, spec: PatchSpec, *, path: str) -> FilePlan:
    """Plans `spec` for a worker file; `path` is for messages and the diff.

    Raises PatchRefused, with the lines looked at, where the file does not have the shape that the patch needs.
    """
    found = Source.parse(source, path)
    original, parsed = without_patch(found, source, spec)
    refuse_strangers(parsed, spec)
    if _may_inherit(spec, path) and source == original and has_no_entry(parsed, spec):
        return _nothing(parsed, source, spec)
    site = locate(parsed, spec)
    anchors, notes = find_anchors(parsed, spec, site)
    edits = sorted((_edit(parsed, spec, anchor) for anchor in anchors), key=lambda edit: edit.line)
    patched = b"".join(_patched(parsed, edits))
    check_patched(parsed, patched, spec)
    return FilePlan(
        path=path,
        worker_class=site.worker.name,
        entry=site.entry.name,
        entry_lines=(site.entry.lineno, site.entry.end_lineno or site.entry.lineno),
        state="already" if source == patched else "patch",
        found=source,
        original=original,
        patched=patched,
        edits=tuple(edits),
        notes=tuple(notes),
        patch_id=spec.id,
    )


def _may_inherit(spec: PatchSpec, path: str) -> bool:
    """Whether `path`, or the file that it is a copy of, is a target without an entry in some releases."""
    return any(t.may_inherit and PurePosixPath(t.path).name == PurePosixPath(path).name for t in spec.targets)


def _nothing(source: Source, found: bytes, spec: PatchSpec) -> FilePlan:
    classes = [part.name for part in source.tree.body if isinstance(part, ast.ClassDef)]
    return FilePlan(
        path=source.path,
        worker_class=classes[-1] if classes else "",
        entry="",
        entry_lines=(0, 0),
        state="nothing",
        found=found,
        original=found,
        patched=found,
        edits=(),
        notes=(f"no class here defines {' or '.join(spec.entry)}: there is nothing to patch",),
        patch_id=spec.id,
    )


def _edit(source: Source, spec: PatchSpec, found: Anchor) -> Edit:
    anchor = source.line(found.line)
    indent = anchor[: len(anchor) - len(anchor.lstrip())].decode()
    text = tuple(mark(indent + row, spec.id).encode() for row in found.code.splitlines())
    return Edit(found.line, anchor, text, found.place.name)


def _patched(source: Source, edits: Sequence[Edit]) -> Iterator[bytes]:
    for number, line in enumerate(source.lines, start=1):
        newline = source.newline(number)
        for edit in edits:
            if edit.line == number:
                yield from (row + newline for row in edit.text)
        yield line


def _shown(data: bytes) -> list[str]:
    lines = [line.decode(errors="replace") for line in split_lines(data)]
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines
