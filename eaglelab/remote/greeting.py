"""How an agent is started: a few lines go to the host's Python over stdin; they run what is kept there, or ask for the rest."""

from __future__ import annotations

from eaglelab.errors import HostError
from eaglelab.remote.agent.kept import WANTED
from eaglelab.remote.agent.wire import READY
from eaglelab.remote.payload import BOOTSTRAP, agent_source, beginning
from eaglelab.remote.pipe import Link, LinkLost, Pipe, Silent
from eaglelab.remote.sudo import sudo_refused
from eaglelab.remote.talk import Talk

__all__ = ["start_agent"]

_MOST_CHATTER = 1 << 20
"""What a login shell may print before the agent speaks (bytes)."""


def start_agent(link: Link, python: str, silence: float) -> Talk:
    """Starts an agent. Raises LinkLost, or HostError where the host's `python` is none that will do.

    What a login shell prints before the greeting is dropped.
    """
    pipe = link.open([python, "-I", "-S", "-c", BOOTSTRAP])
    try:
        return Talk(pipe, link.name, _greeted(pipe, link, python, silence))
    except BaseException:
        pipe.close()
        raise


def _greeted(pipe: Pipe, link: Link, python: str, silence: float) -> bytes:
    """Bytes that came after the greeting."""
    source = agent_source()
    seen, sent = b"", False
    try:
        pipe.send(_sized(beginning(source)), silence)
        while READY not in seen:
            piece = pipe.receive(silence)
            seen += piece
            if not piece or len(seen) > _MOST_CHATTER:
                break
            if WANTED in seen and not sent:
                pipe.send(_sized(source), silence)
                sent = True
    except Silent:
        raise
    except LinkLost as error:  # it ended, which may be why nobody took the source
        raise _no_agent(pipe, seen + _last_words(pipe), link, python) from error
    if READY not in seen:
        raise _no_agent(pipe, seen, link, python)
    return seen.split(READY, 1)[1]


def _sized(source: bytes) -> bytes:
    return b"%d\n" % len(source) + source


def _last_words(pipe: Pipe) -> bytes:
    try:
        return pipe.receive(1.0)
    except LinkLost:
        return b""


def _no_agent(pipe: Pipe, seen: bytes, link: Link, python: str) -> HostError:
    name = link.name
    if len(seen) > _MOST_CHATTER:
        return _wrong(f"{python} prints without end and starts no agent: {_text(seen[:200])}", name)
    code, stderr = pipe.ended()
    if code is None:
        return LinkLost("the connection broke while the agent was started", where=name)
    text = (stderr.strip() or _text(seen))[-500:]
    said = [line for line in text.splitlines() if line.startswith("sudo: ")]
    if link.sudo_user is not None and said:
        return sudo_refused(said[-1], link.sudo_user, name)
    if "EAGLELAB-PYTHON-TOO-OLD" in text:
        version = text.rsplit("EAGLELAB-PYTHON-TOO-OLD", 1)[1].split()[0]
        return _wrong(f"{python} is Python {version}; 3.8 or later is needed", name)
    if "Unknown option: -I" in text:
        return _wrong(f"{python} is Python 2; 3.8 or later is needed", name)
    if code in (126, 127):
        return _wrong(f"there is no Python at {python}: {text}", name)
    what = f"{python} ended with {code} before the agent ran: {text or 'it said nothing'}"
    return _wrong(what, name, also=_NO_COMMAND if code == 0 or not text or "sftp" in text else "")


_NO_COMMAND = (
    "; or did the login there run something else? An account for file transfer only, a ForceCommand, or a start file"
    " (~/.bashrc, ~/.cshrc) that ends the shell also when nobody types into it"
)


def _wrong(what: str, name: str, also: str = "") -> HostError:
    hint = "set `python` of this host in inventory.yaml to the Python that runs SGLang there"
    return HostError(what, where=name, hint=hint + also)


def _text(data: bytes) -> str:
    return data.decode(errors="replace").strip()
