"""Links that have all the time there is for what lives, and none once a test has broken them."""

from __future__ import annotations

from eaglelab.remote.ssh import SshLink
from eaglelab.remote.watched import Patience, WatchedSocket

__all__ = ["CALM", "lose_patience", "socket_of"]

CALM = Patience(probe=0.1, dead=60.0)
"""However busy this machine is: what lives answers in time. The other end is asked often all the same."""


def socket_of(link: SshLink) -> WatchedSocket:
    """Of the connection that there is."""
    found = link._socket
    assert found is not None
    return found


def lose_patience(link: SshLink, dead: float) -> None:
    """From here on the other end may owe an answer for so long (s), and no longer."""
    socket_of(link)._dead = dead
