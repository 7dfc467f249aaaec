"""Extended attributes: what a file carries beside its bytes, its mode and its owner."""

from __future__ import annotations

import errno
import os

from eaglelab.remote.agent.wire import AgentError

__all__ = ["copy_attributes"]

_NAMES = {
    "system.posix_acl_access": "its ACL",
    "security.selinux": "its SELinux context",
    "security.capability": "its capabilities",
}
_NONE_HERE = (errno.ENOTSUP, errno.ENOSYS)


def copy_attributes(source: str, descriptor: int) -> None:
    """Gives the file of `descriptor` the attributes of `source`, and takes the ACL that its folder handed down.

    Raises AgentError `attribute-lost` where one cannot be kept, OSError where the file system fails.
    """
    if not hasattr(os, "listxattr"):
        return
    try:
        names = os.listxattr(source)
        there = {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
    except OSError as error:
        if error.errno in _NONE_HERE:
            return
        raise
    for name in there:
        if name not in names and not name.startswith("security."):
            os.removexattr(descriptor, name)
    for name in names:
        try:
            value = os.getxattr(source, name)
            if there.get(name) != value:
                os.setxattr(descriptor, name, value)
        except OSError as error:
            if error.errno == errno.ENODATA:
                continue  # somebody took it away just now
            what = _NAMES.get(name, "its attribute %s" % name)
            raise AgentError(
                "attribute-lost",
                "%s would lose %s: %s" % (source, what, error.strerror),
                path=source,
                attribute=name,
            ) from error
