"""Installations made of links: every file of the package is one, into a store that other environments share.

So installs uv with `--link-mode=symlink`, and conda where it may not hard-link. To write through such a link would
change all environments and what is installed next, so there the link itself gives way to a file, and comes back with a
rollback. A single link, as somebody sets it to a checkout of theirs, is followed: its file is what they run.
"""

from __future__ import annotations

import os

from eaglelab.remote.agent.files import os_error, place_of, sha256_of
from eaglelab.remote.agent.wire import AgentError
from eaglelab.remote.agent.writing import fsync_folder, must_still_be, unlink_quietly

__all__ = ["leads_to", "link_into_store", "put_link"]


def link_into_store(package: str, path: str) -> str | None:
    """What the link at `path` says, where it is to be replaced and not followed; else None."""
    place = place_of(path)
    if _leads_out(package, os.path.join(package, "__init__.py")) and _leads_out(package, place):
        return os.readlink(place)
    return None


def _leads_out(package: str, path: str) -> bool:
    return os.path.islink(path) and not os.path.realpath(path).startswith(package + os.sep)


def leads_to(path: str, link: str) -> str | None:
    """The sha256 of what a link at `path` that says `link` would show; None if nothing that can be read."""
    try:
        return sha256_of(os.path.join(os.path.dirname(place_of(path)), link))
    except AgentError:
        return None


def put_link(path: str, expected: str, link: str, uid: int, gid: int) -> str:
    """Puts the link in the place of the file, whose sha256 must be `expected`, in one step; "restored". Raises AgentError."""
    place = place_of(path)
    temporary = "%s.eaglelab-%d.tmp" % (place, os.getpid())
    must_still_be(path, place, expected, None)
    try:
        unlink_quietly(temporary)  # of a killed process that had this pid
        os.symlink(link, temporary)
        try:
            info = os.lstat(temporary)
            if (info.st_uid, info.st_gid) != (uid, gid):
                os.chown(temporary, uid, gid, follow_symlinks=False)
            must_still_be(path, place, expected, None)
            os.rename(temporary, place)
        except Exception:
            unlink_quietly(temporary)
            raise
        fsync_folder(os.path.dirname(place))
    except OSError as error:
        raise os_error(error, "cannot put back the link %s" % path) from error
    return "restored"
