"""Whether a worker is a released one and, if not, how far it is from the nearest: anchor by anchor, line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Literal

from eaglelab.patching.known import Known, KnownAnchor, KnownFile, describe
from eaglelab.patching.marker import split_lines
from eaglelab.patching.plan import FilePlan

__all__ = ["Drift", "Moved", "find_drift"]


@dataclass(frozen=True)
class Moved:
    """One place of the patch in the nearest released file (`there`) and in this one (`here`); None where it has none."""

    place: str
    there: KnownAnchor | None
    here: KnownAnchor | None

    def __str__(self) -> str:
        if self.there is None or self.here is None:
            gone, line = ("not there", self.here) if self.there is None else ("not here", self.there)
            return f"{self.place}: {gone}" + (f" (line {line.line}: {line.text.strip()})" if line else "")
        by = self.here.line - self.there.line
        how = f"moved by {by:+d}" if by else "not moved"
        where = f"{self.place}: line {self.there.line} -> {self.here.line}, {how}"
        if self.there.text == self.here.text:
            return f"{where}, the same line"
        return f"{where}, another line: `{self.there.text.strip()}` -> `{self.here.text.strip()}`"


@dataclass(frozen=True)
class Drift:
    """How a worker stands to the released ones.

    `kind`: "known", its bytes are those of a release; "edited", it is in an installation of a known release and is not
    that release's; "new", no such release is known, so nothing says that anybody edited it; "unlisted", the patch knows
    no released files. `nearest` is the released file that it is, or is compared with.
    """

    kind: Literal["known", "edited", "new", "unlisted"]
    installed: str | None
    nearest: KnownFile | None = None
    anchors: tuple[Moved, ...] = ()
    changes: tuple[str, ...] = field(default=(), repr=False)
    longer: int = 0

    @property
    def release(self) -> str:
        """The installed release where it is one of those that the nearest file came with, else the newest of them."""
        if self.nearest is None:
            return ""
        return self.installed if self.installed in self.nearest.releases else self.nearest.releases[-1]

    def headline(self) -> str:
        """One sentence about the file."""
        if self.kind == "unlisted":
            return "this patch knows no released files to compare with"
        if self.kind == "known":
            other = self.installed and self.nearest and self.installed not in self.nearest.releases
            return f"known: SGLang {self.release}" + (f", though {self.installed} is installed" if other else "")
        if self.kind == "edited":
            return f"SGLang {self.installed} is installed, and this is not the file that came with it"
        what = f"SGLang {self.installed} is no release that this patch knows" if self.installed else "no release has it"
        return f"not known: {what}; the nearest is {self.release}"

    def lines(self) -> list[str]:
        """Each anchor there and here, then what differs in the entry; nothing for a known file."""
        if self.nearest is None or self.kind == "known":
            return []
        found = [str(anchor) for anchor in self.anchors]
        if self.changes:
            return [*found, f"{self.nearest.entry}, compared with {self.release}:", *self.changes]
        elsewhere = f"what differs is elsewhere in the file ({self.longer:+d} lines)"
        return [*found, f"{self.nearest.entry} has the lines of {self.release}: {elsewhere}"]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "release": self.release, "headline": self.headline(), "lines": self.lines()}


def find_drift(plan: FilePlan, known: Known, installed: str | None) -> Drift:
    """Compares the file of `plan`, without the patch, with the released ones. `installed`: SGLang's version there.

    A local part of the version (`0.5.9+cu128`) is another build of the same release.
    """
    version = (installed or "").partition("+")[0] or None
    same = known.find(plan.original_sha256)
    if same:
        return Drift("known", version, same)
    candidates = known.of_name(plan.path)
    if not candidates:
        return Drift("unlisted", version)
    here = describe(plan)
    nearest = _nearest(here, candidates, version)
    return Drift(
        kind="edited" if version in known.releases else "new",
        installed=version,
        nearest=nearest,
        anchors=tuple(_moved(nearest, here)),
        changes=tuple(_changes(nearest, here, split_lines(plan.original))),
        longer=here.length - nearest.length,
    )


def _nearest(here: KnownFile, files: list[KnownFile], version: str | None) -> KnownFile:
    """The one of the installed release; else the one with the most lines of the entry in common, the newest of several."""
    own = [file for file in files if version in file.releases]
    mine = Counter(here.prints)

    def likeness(file: KnownFile) -> tuple[int, int, int]:
        theirs = Counter(file.prints)
        # Lines that only one of the two has count against it, and so does the distance of the anchors.
        shared = (mine & theirs).total()
        return 2 * shared - len(file.prints), -abs(file.start - here.start), -abs(file.length - here.length)

    return max(reversed(own or files), key=likeness)


def _moved(there: KnownFile, here: KnownFile) -> Iterator[Moved]:
    theirs, ours = list(there.anchors), list(here.anchors)
    for anchor in ours:
        match = next((other for other in theirs if other.place == anchor.place), None)
        if match:
            theirs.remove(match)
        yield Moved(anchor.place, match, anchor)
    for anchor in theirs:
        yield Moved(anchor.place, anchor, None)


def _changes(there: KnownFile, here: KnownFile, lines: list[bytes]) -> Iterator[str]:
    """Lines of the entry that only one of the two has. Of a released line only the anchors' text is known."""
    texts = {anchor.line: anchor.text for anchor in there.anchors}
    matcher = SequenceMatcher(None, there.prints, here.prints, autojunk=False)
    for what, first, last, begin, end in matcher.get_opcodes():
        if what == "equal":
            continue
        for number in range(there.start + first, there.start + last):
            yield f"- {number:5d} | {texts.get(number, '(a line of the release that is not here)')}"
        for number in range(here.start + begin, here.start + end):
            yield f"+ {number:5d} | {lines[number - 1].decode(errors='replace').rstrip()}"
