"""Refuses what a sweep varies and the release of SGLang there does not know, before a load is spent on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eaglelab.context import Context
from eaglelab.errors import Refused
from eaglelab.sweep.matrix import Matrix

__all__ = ["refuse", "refuse_unknown"]


def refuse_unknown(context: Context, matrix: Matrix, *, anyway: bool) -> None:
    """Looks up the flags and variables that are varied in the release's own sources, as text.

    Raises Refused for what they do not hold; with `anyway` it is only said. Where they hold too little to tell, or lie in
    an image, nothing is said.
    """
    if not (matrix.flags or matrix.env) or context.facts.get("image"):
        return
    found = context.client.call(
        "look_up",
        silence=90,
        package=context.facts["package"],
        flags=sorted(matrix.flags),
        variables=sorted(matrix.env),
    )
    version = context.facts["sglang_version"]
    told = [
        *_told(found["flags"], "--", f"SGLang {version} does not know", "its server would end as it starts"),
        *_told(found["variables"], "", f"nothing in SGLang {version} reads", "every value would be the same load"),
    ]
    if told:
        refuse(context, told, "correct --server-arg and --env (or the sweep file)", anyway=anyway)


def refuse(context: Context, told: Iterable[str], remedy: str, *, anyway: bool) -> None:
    """Raises Refused for what a load would be wasted on; with `anyway` it is only said."""
    what = "; ".join(told)
    if not anyway:
        hint = f"{remedy}; or spend the loads all the same: --anyway"
        raise Refused(what, where=context.host.name, hint=hint)
    context.say.line(f"  tried all the same: {what}", style="yellow")


def _told(found: Mapping[str, Any] | None, dashes: str, what: str, so: str) -> Iterator[str]:
    unknown = {} if found is None else found["unknown"]
    names = [f"{dashes}{name}" + (f" (did you mean {dashes}{near}?)" if near else "") for name, near in unknown.items()]
    if names:
        yield f"{what} {', '.join(names)}: {so}"
