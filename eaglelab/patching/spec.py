"""A patch is data: the patch.yaml of its folder, checked."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from eaglelab import yamlfile
from eaglelab.checking import check
from eaglelab.nearest import did_you_mean
from eaglelab.patching.marker import comes_with
from eaglelab.patching.place import AFTER, FIXED_PLACES, TEXT_PLACES, Place

__all__ = ["Module", "PatchSpec", "Place", "Statement", "Target", "load_patch"]


def _below_package(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or ".." in parts:
        raise ValueError(f"must be a path below the sglang package, such as srt/speculative/x.py, not '{path}'")
    return path


def _canary(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    missing = [name for name in ("class", "rank", "world") if name not in groups]
    if missing:
        raise ValueError(f"lacks the named group {', '.join(f'(?P<{name}>...)' for name in missing)}")
    return pattern


Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Text = Annotated[str, Field(min_length=1)]
PackagePath = Annotated[str, AfterValidator(_below_package)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Target(_Model):
    """A file to patch, below the sglang package. An optional one may be missing; one target must exist.

    `may_inherit`: in some releases its class leaves the entry to a base class of another file, and then there is nothing
    to patch in it.
    """

    path: PackagePath
    optional: bool = True
    may_inherit: bool = False


class Module(_Model):
    """A file that comes with the patch: from the patch's folder to a path below the sglang package.

    A line of it names the patch (`# eaglelab:ID`), so that a copy found on a host is known to have no original.
    """

    source: Text
    to: PackagePath


class Statement(_Model):
    """A landmark: the statement of the decode branch that makes one of these calls.

    `repeats`: later statements may call it again, and the first is meant. `binds` are the names to prefer for `{bound}`
    among those that the statement assigns the call's result to.
    """

    calls: tuple[Text, ...] = Field(min_length=1)
    optional: bool = False
    repeats: bool = False
    binds: tuple[Text, ...] = ()


class PatchSpec(_Model):
    """The patch of one folder.

    `entry` names the method to patch and `branch` the call that tells its decode branch; `statements` are the landmarks
    in it, in the order in which they must stand. `gate` is the environment variable that switches the patch on and
    `canary` the pattern of the line that proves it ran. `records`: what it writes can be made into a profile. A file that
    holds a `foreign` text is refused.
    """

    id: Word
    version: Word
    title: Text
    gate: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
    canary: Annotated[str, AfterValidator(_canary)]
    records: bool = False
    foreign: tuple[Text, ...] = ()
    targets: tuple[Target, ...] = Field(min_length=1)
    modules: tuple[Module, ...] = ()
    entry: tuple[Text, ...] = Field(min_length=1)
    branch: Text
    statements: dict[str, Statement]
    places: tuple[Place, ...] = Field(min_length=1)


def load_patch(folder: Path) -> PatchSpec:
    """Reads `folder`/patch.yaml. Raises InputError that names the line and what was meant."""
    doc = yamlfile.load(folder / "patch.yaml")
    spec = check(PatchSpec, doc.value, doc)
    for number, module in enumerate(spec.modules):
        if not (folder / module.source).is_file():
            what = f"'{module.source}' is not in the folder of the patch"
            raise doc.problem(what, "modules", number, "source", hint=f"put it into {folder}")
        if not comes_with(spec.id, (folder / module.source).read_bytes()):
            what = f"'{module.source}' does not say that it belongs to this patch"
            raise doc.problem(what, "modules", number, "source", hint=f"give it a line '# eaglelab:{spec.id}'")
    taken = [AFTER + name for name in spec.statements if AFTER + name in (*FIXED_PLACES, *TEXT_PLACES)]
    if taken:
        name = taken[0].removeprefix(AFTER)
        raise doc.problem(f"the name '{name}' is taken: '{taken[0]}' is a place", "statements", name)
    for number, place in enumerate(spec.places):
        _check_place(doc, spec, number, place)
    return spec


def _check_place(doc: yamlfile.Located, spec: PatchSpec, number: int, place: Place) -> None:
    places = [*FIXED_PLACES, *TEXT_PLACES, *(AFTER + name for name in spec.statements)]
    if place.at not in places:
        what = f"'{place.at}' is not a place"
        raise doc.problem(what, "places", number, "at", hint=did_you_mean(place.at, places, label="places"))
    optional = [name for name, statement in spec.statements.items() if statement.optional]
    for key, name in (("when", place.when), ("unless", place.unless)):
        if name is not None and name not in optional:
            what = f"'{name}' is not an optional statement"
            raise doc.problem(what, "places", number, key, hint=did_you_mean(name, optional, label="optional"))
    problem = place.problem(spec.id)
    if problem:
        key, what = problem
        raise doc.problem(what, "places", number, key, hint="docs/patches.md says what goes where")
