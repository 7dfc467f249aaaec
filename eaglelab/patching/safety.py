"""What must hold before a plan is given out: nobody else's lines in the file, and the same program without ours."""

from __future__ import annotations

from eaglelab.patching.errors import PatchRefused
from eaglelab.patching.marker import is_marked, named, strip
from eaglelab.patching.source import Source
from eaglelab.patching.spec import PatchSpec
from eaglelab.patching.tree import same_tree

__all__ = ["check_patched", "refuse_strangers", "without_patch"]

_MEND = "mend those lines, or reinstall the file, then run again"


def without_patch(found: Source, data: bytes, spec: PatchSpec) -> tuple[bytes, Source]:
    """The bytes without the lines that some version of the patch inserted, and the same parsed.

    Raises PatchRefused where dropping them takes more than whole statements: then the marker is not ours (it stands in a
    string, or on one line of a call).
    """
    original = strip(data, spec.id)
    if original == data:
        return original, found
    try:
        parsed = Source.parse(original, found.path)
        whole = _same_but_for_marked(found, parsed, spec)
    except PatchRefused:
        whole = False
    if not whole:
        reason = f"without the lines that carry the marker of {spec.id}, this would be another program than before"
        raise found.refuse(reason, sorted(_marked(found, spec)), hint=_MEND)
    return original, parsed


def refuse_strangers(source: Source, spec: PatchSpec) -> None:
    """Raises PatchRefused for timers typed in by hand, another patch, and for our own marker in odd places."""
    patches = named(source.lines)
    others = {number: patch for number, patch in patches.items() if patch != spec.id}
    if others:
        hint = "take that one out first: invoke rollback"
        raise source.refuse(f"this file carries the patch {', '.join(sorted(set(others.values())))}", others, hint=hint)
    if patches:
        raise source.refuse(f"the marker of {spec.id} stands where this patch does not put it", patches, hint=_MEND)
    for text in spec.foreign:
        numbers = [number for number, line in enumerate(source.lines, start=1) if text.encode() in line]
        if numbers:
            reason = f"{text} is already in this file, and not from this patch"
            raise source.refuse(reason, numbers, hint="take those lines out, or reinstall the file, then run again")


def check_patched(source: Source, patched: bytes, spec: PatchSpec) -> None:
    """The patched file must compile and, without the inserted statements, be the program of `source`.

    Raises PatchRefused where it is not.
    """
    try:
        after = Source.parse(patched, source.path)
    except PatchRefused as error:
        line = "".join(f" at `{text.strip()}`" for _, text in error.looked_at)
        raise source.refuse(f"with the inserted lines{line}, {error.reason}", []) from error
    if not _same_but_for_marked(after, source, spec):
        raise source.refuse("the inserted lines would change the meaning of the file", [])


def _marked(source: Source, spec: PatchSpec) -> set[int]:
    return {number for number, line in enumerate(source.lines, start=1) if is_marked(line, spec.id)}


def _same_but_for_marked(marked: Source, plain: Source, spec: PatchSpec) -> bool:
    return same_tree(marked.tree, plain.tree, without=_marked(marked, spec))
