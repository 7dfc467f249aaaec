"""A patch is data: the patch.yaml of its folder, checked."""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from eaglelab import yamlfile
from eaglelab.checking import check
from eaglelab.nearest import did_you_mean
from eaglelab.patching.marker import mark

__all__ = ["AFTER", "FIXED_PLACES", "Module", "PatchSpec", "Place", "Statement", "Target", "load_patch"]

AFTER = "after "
FIXED_PLACES = ("after imports", "start of function", "start of branch", "before return")


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
    model_config = ConfigDict(extra="forbid", frozen=True)


class Target(_Model):
    """A file to patch, below the sglang package. An optional one may be missing; one target must exist."""

    path: PackagePath
    optional: bool = True


class Module(_Model):
    """A file that comes with the patch: from the patch's folder to a path below the sglang package."""

    source: Text
    to: PackagePath


class Statement(_Model):
    """A landmark: the first statement of the decode branch that makes one of these calls.

    `binds` are the names to prefer for `{bound}` among those that the statement assigns the call's result to.
    """

    calls: tuple[Text, ...] = Field(min_length=1)
    optional: bool = False
    binds: tuple[Text, ...] = ()


class Place(_Model):
    """Text to insert, and where: one of FIXED_PLACES, or `after NAME` of a statement."""

    name: Text
    at: Text
    insert: Text

    def filled(self, *, batch: str, bound: str) -> str:
        """The text for one file: `{batch}` and `{bound}` stand for names in it, every other brace for itself."""
        return self.insert.rstrip("\n").replace("{batch}", batch).replace("{bound}", bound)


class PatchSpec(_Model):
    """The patch of one folder.

    `entry` names the method to patch and `branch` the call that tells its decode branch; `statements` are the landmarks
    in it, in the order in which they must stand. `gate` is the environment variable that switches the patch on and
    `canary` the pattern of the line that proves it ran. A file that holds a `foreign` text is refused.
    """

    id: Word
    version: Word
    title: Text
    gate: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
    canary: Annotated[str, AfterValidator(_canary)]
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
    places = [*FIXED_PLACES, *(AFTER + name for name in spec.statements)]
    for number, place in enumerate(spec.places):
        if place.at not in places:
            what = f"'{place.at}' is not a place"
            raise doc.problem(what, "places", number, "at", hint=did_you_mean(place.at, places, label="places"))
        problem = _not_insertable(place.filled(batch="batch", bound="bound"), spec.id)
        if problem:
            what = f"the text of '{place.name}' cannot be inserted: {problem}"
            raise doc.problem(what, "places", number, "insert")
    return spec


def _not_insertable(code: str, patch_id: str) -> str:
    """Why `code` is no set of whole Python lines that can each end with a comment; empty where it is."""
    try:
        plain = ast.parse(code)
        marked = ast.parse("\n".join(mark(line, patch_id) for line in code.splitlines()))
    except SyntaxError as error:
        return f"{error.msg} (its line {error.lineno})"
    if not plain.body or ast.dump(plain) != ast.dump(marked):
        return "a string or a statement in it spans lines in a way that leaves no room for the marker comment"
    return ""
