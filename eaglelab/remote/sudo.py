"""Work as root on a host where one logs in as somebody else."""

from __future__ import annotations

from eaglelab.errors import HostError

__all__ = ["SUDO", "sudo_refused"]

SUDO = ("sudo", "-n", "-H", "--")
"""Put before the agent's command. `-n`: nobody is there to type a password; `-H`: root's home, so root's state folder."""


def sudo_refused(said: str, user: str, where: str) -> HostError:
    """`said`: what sudo wrote to stderr."""
    line = f"{user} ALL=(root) NOPASSWD: ALL"
    if "tty" in said:
        line = f"Defaults:{user} !requiretty"
    return HostError(
        f"{user} cannot become root there without a question: {said}",
        where=where,
        hint=f"visudo on that host, and add: {line}; or log in as root (`user` in inventory.yaml) and leave `sudo` out",
    )
