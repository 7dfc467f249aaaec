"""SSH against OpenSSH's own server: who is let in, what arrives, and what a broken link looks like."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko
import pytest
from hostkit import Installation
from serverkit import alive, free_port, until
from sshd import Sshd, make_key
from test_agent_http import DONE, STOP, chunk, stream, web

from eaglelab.errors import HostError
from eaglelab.remote.client import AgentClient
from eaglelab.remote.endpoint import Endpoint
from eaglelab.remote.pipe import LinkLost, Silent
from eaglelab.remote.quoting import remote_command
from eaglelab.remote.ssh import SshLink
from eaglelab.remote.watched import Patience

pytestmark = pytest.mark.sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.close()


@pytest.fixture
def link(sshd: Sshd) -> Iterator[SshLink]:
    found = SshLink("gpu", sshd.endpoint())
    yield found
    found.close()


@pytest.fixture
def agent(link: SshLink) -> Iterator[AgentClient]:
    found = AgentClient(link, sys.executable, sleep=lambda _: None)
    yield found
    found.close()


def transport(link: SshLink) -> paramiko.Transport:
    found: paramiko.Transport = link._connection.transport
    return found


def output(link: SshLink, *command: str) -> bytes:
    pipe = link.open(command)
    pieces = iter(lambda: pipe.receive(5.0), b"")
    whole = b"".join(pieces)
    pipe.close()
    return whole


def refusal(endpoint: Endpoint, **more: Any) -> HostError:
    link = SshLink("gpu", endpoint, **more)
    threads = threading.active_count()
    with pytest.raises(HostError) as refused:
        link.open(["true"])
    assert link._connection is None
    until(lambda: threading.active_count() <= threads, "the transport's thread has ended")
    return refused.value


def test_the_agent_works_over_ssh(agent: AgentClient, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_bytes(b"x = 1\n")
    agent.lock({"by": "me", "run": "run-1"})
    assert agent.call_bytes("read", path=str(tmp_path / "worker.py"))[1] == b"x = 1\n"
    assert (sshd.home / "state/eaglelab/lock").exists()
    agent.close()
    agent.lock({"by": "me", "run": "run-2"})  # the goodbye freed it


def test_twenty_megabytes_go_both_ways_intact(agent: AgentClient, tmp_path: Path) -> None:
    host = Installation(tmp_path)
    large, worker = os.urandom(20 << 20), host.workers[0]
    worker.write_bytes(large)
    assert agent.call_bytes("read", path=str(worker))[1] == large
    agent.lock({"by": "me", "run": "run-1"})
    worker.write_bytes(b"x = 1\n")
    entry = host.entry(worker, large, b"x = 1\n")
    sized = [{"path": str(worker), "size": len(large), "sha256": entry["original"]}]
    agent.call("backup", large, run="run-1", patch="t", by="me", files=[entry], originals=sized)
    agent.call("rollback", run="run-1")
    assert worker.read_bytes() == large


def test_the_connection_has_no_delay_and_asks_for_signs_of_life(agent: AgentClient, link: SshLink) -> None:
    agent.call("status")
    assert transport(link).sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert transport(link).packetizer._Packetizer__keepalive_interval == 5  # type: ignore[attr-defined]


def test_every_word_arrives_as_it_is(link: SshLink) -> None:
    words = [
        "a b",
        "it's",
        '"',
        "$HOME",
        "`id`",
        ";id",
        "a\nb",
        "é\u2028ü",
        "*",
        "~",
        "-n",
        "",
        "!x",
        "a\\b",
        "&",
        "#",
        "\x01",
    ]
    script = "import sys; sys.stdout.buffer.write(ascii(sys.argv[1:]).encode())"
    assert output(link, sys.executable, "-S", "-c", script, *words) == ascii(words).encode()


def test_a_leading_tilde_is_the_home_folder_there(link: SshLink, sshd: Sshd) -> None:
    program = sshd.home / "my env" / "python$3"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho found it\n")
    program.chmod(0o755)
    assert output(link, "~/my env/python$3") == b"found it\n"
    assert remote_command(["~/a b", "~/c"]) == "exec ~/'a b' '~/c'"


def test_the_command_replaces_the_shell(link: SshLink) -> None:
    parent = int(output(link, sys.executable, "-S", "-c", "import os; print(os.getppid())"))
    assert Path(f"/proc/{parent}/comm").read_text().startswith("sshd")


def test_what_a_login_shell_prints_does_not_disturb(agent: AgentClient, sshd: Sshd) -> None:
    (sshd.home / ".bashrc").write_text("echo Welcome to GPU 7; echo careful >&2; printf 'EL1 5 5\\n'\n")
    try:
        assert agent.call("status")["alive"] is False
    finally:
        (sshd.home / ".bashrc").unlink()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "there is no Python at ~/wrong"),
        ("#!/bin/sh\necho 'EAGLELAB-PYTHON-TOO-OLD 3.6' >&2\nexit 1\n", "is Python 3.6"),
        ("#!/bin/sh\nkill -9 $$\n", "the connection broke while the agent was started"),
    ],
)
def test_a_python_that_is_none_is_told_apart(sshd: Sshd, link: SshLink, text: str | None, what: str) -> None:
    program = sshd.home / "wrong"
    program.unlink(missing_ok=True)
    if text:
        program.write_text(text)
        program.chmod(0o755)
    with pytest.raises(HostError, match=what):
        AgentClient(link, "~/wrong", attempts=1).call("status")


def test_an_unknown_host_key_is_refused_and_the_way_to_learn_it_is_told(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "my known_hosts"
    error = refusal(sshd.endpoint(known_hosts=(str(known),)))
    shown = subprocess.run(
        ["ssh-keygen", "-lf", sshd.folder / "host_ed25519.pub"], capture_output=True, text=True, check=True
    )
    assert error.what == f"the host key is not known: ssh-ed25519 {shown.stdout.split()[1]}"
    assert f"ssh-keyscan -p {sshd.port} 127.0.0.1 >> '{known}'" in error.hint
    subprocess.run(error.hint.partition(": ")[2], shell=True, check=True, capture_output=True)
    link = SshLink("gpu", sshd.endpoint(known_hosts=(str(known),)))
    assert output(link, "echo", "in") == b"in\n"
    link.close()


def test_a_changed_host_key_is_refused_and_the_way_to_mend_it_is_told(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_line("ed25519", make_key(tmp_path / "other")))
    endpoint = sshd.endpoint(known_hosts=(str(known),))
    error = refusal(endpoint)
    assert "not the one in known_hosts" in error.what
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {known} && ssh-keyscan -p {sshd.port}" in error.hint
    subprocess.run(error.hint.partition(": ")[2], shell=True, check=True, capture_output=True)
    link = SshLink("gpu", endpoint)
    assert output(link, "echo", "in") == b"in\n"
    link.close()


@pytest.mark.parametrize("kind", ["rsa", "ed25519"])
def test_a_host_that_is_known_by_one_of_its_keys_is_known(sshd: Sshd, tmp_path: Path, kind: str) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_line(kind))
    link = SshLink("gpu", sshd.endpoint(known_hosts=("/none", str(known))))
    assert output(link, "echo", "in") == b"in\n"
    link.close()


def test_a_host_without_the_type_of_key_that_is_known_is_not_called_an_impostor(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_line("ecdsa", make_key(tmp_path / "old", "ecdsa")))
    error = refusal(sshd.endpoint(known_hosts=(str(known),)))
    assert "shows none of their types any more" in error.what
    assert "ssh-keyscan" in error.hint


def test_a_hashed_known_hosts_is_understood(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(sshd.known_line("ed25519"))
    subprocess.run(["ssh-keygen", "-H", "-f", known], check=True, capture_output=True)
    assert "127.0.0.1" not in known.read_text()
    link = SshLink("gpu", sshd.endpoint(known_hosts=(str(known),)))
    assert output(link, "echo", "in") == b"in\n"
    link.close()


def test_a_damaged_line_of_known_hosts_is_shown(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("[127.0.0.1]:* ssh-ed25519 AAAA=A=\n")
    assert "a line that cannot be read: [127.0.0.1]:*" in refusal(sshd.endpoint(known_hosts=(str(known),))).what


def test_a_damaged_line_about_another_host_is_none_of_ours(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("host.example ssh-ed25519 AAAA=A=\n\n# x\nnonsense\n" + sshd.known_line("ed25519"))
    link = SshLink("gpu", sshd.endpoint(known_hosts=(str(known),)))
    assert output(link, "echo", "in") == b"in\n"
    link.close()


def test_a_wrong_key_is_refused_with_the_keys_that_were_tried(sshd: Sshd, tmp_path: Path) -> None:
    key = make_key(tmp_path / "wrong")
    error = refusal(sshd.endpoint(keys=(str(key),)))
    assert error.what == f"the host refused the login (keys tried: {key})"
    assert not isinstance(error, LinkLost)


def test_no_such_user_is_a_refused_login(sshd: Sshd) -> None:
    error = refusal(sshd.endpoint(user="nobody-by-this-name"))
    assert "refused the login" in error.what
    assert f"ssh -p {sshd.port} nobody-by-this-name@127.0.0.1" in error.hint


def test_no_key_at_all_is_a_refused_login(sshd: Sshd) -> None:
    assert "refused the login (keys tried: none found)" in refusal(sshd.endpoint(keys=())).what


def test_an_encrypted_key_is_named_as_what_it_is(sshd: Sshd, tmp_path: Path) -> None:
    error = refusal(sshd.endpoint(keys=(str(make_key(tmp_path / "locked", passphrase="secret")),)))
    assert "the key is encrypted, and no agent holds it" in error.what
    assert "ssh-add" in error.hint


def test_a_key_file_that_is_none_is_a_sentence(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "garbage").write_text("not a key\n")
    assert isinstance(refusal(sshd.endpoint(keys=(str(tmp_path / "garbage"),))), HostError)


def test_a_closed_port_is_a_lost_link_and_the_default_host_points_to_the_lab(sshd: Sshd) -> None:
    error = refusal(sshd.endpoint(port=free_port()), default_host=True)
    assert isinstance(error, LinkLost)
    assert "cannot be reached: [Errno 111] Connection refused" in error.what
    assert "--host sim" in error.hint


@pytest.mark.parametrize(
    ("greeting", "connect_timeout", "dead", "what"),
    [
        (b"", 0.3, 60.0, "no SSH server spoke within 0.3 s"),
        (b"SSH-2.0-silent\r\n", 60.0, 0.4, "no sign of life for 0.4 s"),
    ],
    ids=["says-nothing", "greets-only"],
)
def test_a_port_that_accepts_and_stays_silent_is_given_up_in_time(
    sshd: Sshd, greeting: bytes, connect_timeout: float, dead: float, what: str
) -> None:
    with silent_port(greeting) as port:
        error = refusal(sshd.endpoint(port=port, connect_timeout=connect_timeout), patience=Patience(dead=dead))
    assert isinstance(error, LinkLost)
    assert what in error.what


def test_a_port_that_speaks_something_else_is_given_up(sshd: Sshd) -> None:
    with web(stream(b"hello")) as server:
        assert isinstance(refusal(sshd.endpoint(port=server.port, connect_timeout=1.0)), LinkLost)


def test_no_traceback_of_paramiko_reaches_the_terminal_and_the_program_ends_at_once(sshd: Sshd) -> None:
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from eaglelab.remote.endpoint import Endpoint
from eaglelab.remote.ssh import SshLink
from eaglelab.remote.watched import Patience
try:
    SshLink("gpu", {sshd.endpoint(port=0)!r}, patience=Patience(dead=DEAD)).open(["true"])
except Exception as error:
    print(error)
"""
    for greeting, dead, said in (
        (b"HTTP/1.0 200 OK\r\n" * 200, "60.0", "Indecipherable"),
        (b"SSH-2.0-x\r\n", "0.5", "no sign of life"),
    ):
        with silent_port(greeting) as port:  # which stays open: a thread that waited on it would keep the program
            source = script.replace("port=0", f"port={port}").replace("DEAD", dead)
            command = [sys.executable, "-c", source]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert said in done.stdout
        assert done.stderr == ""


@contextmanager
def silent_port(greeting: bytes) -> Iterator[int]:
    """Accepts one connection, greets and says no more."""
    accepted: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(TimeoutError):
            accepted.append(server.accept()[0])
            accepted[0].sendall(greeting)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        thread = threading.Thread(target=accept)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()
    for found in accepted:
        found.close()


def test_another_machine_is_refused_before_any_packet(sshd: Sshd) -> None:
    error = refusal(sshd.endpoint(address="192.0.2.7"))
    assert "192.0.2.7 is not this machine" in error.what
    error = refusal(sshd.endpoint(proxy_command="nc 192.0.2.7 22"))
    assert "is reached through a proxy (nc 192.0.2.7 22)" in error.what


def test_a_session_that_is_killed_in_the_middle_of_a_call_is_made_anew(agent: AgentClient, sshd: Sshd) -> None:
    agent.lock({"by": "me", "run": "run-1"})
    sshd.signal_sessions(signal.SIGKILL)
    assert agent.call("rollback", run="run-1")["nothing"]


def test_a_session_that_is_killed_while_a_request_is_at_work_is_unknown_and_not_repeated(
    agent: AgentClient, sshd: Sshd
) -> None:
    def kill(_: Any, server: Any) -> None:
        sshd.signal_sessions(signal.SIGKILL)
        server.release.wait(60)

    with web(kill) as server, pytest.raises(LinkLost):
        agent.call("generate", host="127.0.0.1", port=server.port, body={}, key=None, timeout=5.0)
    assert len(server.requests) == 1


def test_a_frozen_host_is_noticed_by_its_silence_and_the_next_call_makes_a_new_link(sshd: Sshd) -> None:
    link = SshLink("gpu", sshd.endpoint())
    agent = AgentClient(link, sys.executable, attempts=1)
    agent.lock({"by": "me", "run": "run-1"})
    with sshd.frozen():
        with pytest.raises(Silent, match=r"no answer for 0\.[12] s"):
            agent.call("status", silence=0.2)
        # The agent behind the frozen session still has the lock: it is ours, and is ended for it.
        assert agent.call("rollback", run="run-1")["nothing"]
    agent.close()


def test_a_frozen_host_that_takes_no_more_bytes_is_noticed_too(sshd: Sshd) -> None:
    agent = AgentClient(SshLink("gpu", sshd.endpoint()), sys.executable, attempts=1)
    agent.lock({"by": "me", "run": "run-1"})
    with sshd.frozen(), pytest.raises(Silent, match=r"took nothing for 0\.[13] s"):
        agent.call("apply", b"x" * (16 << 20), silence=0.3, run="run-1", files=[])
    agent.close()


def test_no_agent_is_left_after_the_goodbye(agent: AgentClient, sshd: Sshd) -> None:
    agent.lock({"by": "me", "run": "run-1"})
    pid = int((sshd.home / "state/eaglelab/lock").read_text().rpartition('"pid": ')[2].partition(",")[0])
    assert alive(pid)
    agent.close()
    assert not alive(pid)
    until(lambda: sshd.sessions() == [], "the session is over")


def test_a_host_that_allows_one_session_a_connection_is_enough(tmp_path: Path) -> None:
    server = Sshd(tmp_path, options=("MaxSessions 1",), host_keys=("ed25519",))
    agent = AgentClient(SshLink("gpu", server.endpoint()), sys.executable, sleep=lambda _: None)
    try:
        for _ in range(2):
            agent.lock({"by": "me", "run": "run-1"})
            with pytest.raises(KeyboardInterrupt):
                agent.call("stop", run="run-1", grace=0.0, silence=interrupting())
            assert agent.call("rollback", run="run-1")["nothing"]
    finally:
        agent.close()
        server.close()


def interrupting() -> Any:
    class Seconds(float):
        """A Ctrl-C while the answer is awaited."""

        def __float__(self) -> float:
            raise KeyboardInterrupt

        __eq__ = __lt__ = __gt__ = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[assignment]
        __hash__ = float.__hash__

    return Seconds(5.0)


def test_a_generate_runs_over_ssh_with_news(agent: AgentClient) -> None:
    news: list[dict[str, Any]] = []
    with web(slowly(chunk(1), chunk(2, STOP), DONE)) as server:
        answer = agent.call(
            "generate", host="127.0.0.1", port=server.port, body={}, key=None, timeout=5.0, news=news.append
        )
    assert [tokens for _, tokens in answer["chunks"]] == [1, 2]
    # Twice a second at most: so the first chunk is told of only where it was half a second in coming.
    assert news in ([{"tokens": 2}], [{"tokens": 1}], [{"tokens": 1}, {"tokens": 2}])


def slowly(*pieces: bytes) -> Callable[[Any, Any], None]:
    def answer(handler: Any, server: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(piece)
            handler.wfile.flush()
            server.release.wait(0.55 if piece == pieces[0] else 0)

    return answer


def test_the_state_folder_there_is_for_its_owner_alone(agent: AgentClient, sshd: Sshd) -> None:
    agent.lock({"by": "me", "run": "run-1"})
    assert stat.S_IMODE((sshd.home / "state/eaglelab/lock").stat().st_mode) == 0o600
