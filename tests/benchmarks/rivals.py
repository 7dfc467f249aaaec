"""The same job on the same hosts by three tools: their files, and the command line of each.

The job: back the worker up, read three ranges of its lines, insert at three anchors, compile it, take its sha256, and
put the original back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loopback_hosts import ROOT, Farm, LoopbackHost

PACKAGES = ("ansible-core>=2.16,<3", "pyinfra>=3,<4")
RANGES = ("1,6p", "8,20p", "21,36p")
ANCHORS = ("^logger = ", "spec_info = self.draft", "self.verify")
INSERTED = "# inserted by the benchmark"


@dataclass(frozen=True)
class Rival:
    """One tool's way to do the job: words of its command, where it runs, and its variables."""

    name: str
    command: Sequence[str]
    cwd: Path
    env: dict[str, str]

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command, cwd=self.cwd, env=self.env, capture_output=True, text=True, timeout=600, check=False
        )


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What all tools get: bytecode is kept, as it is where they are installed, but nowhere else than in `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EAGLELAB", "ANSIBLE"))}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "pycache"), "HOME": str(folder / "controller"), **more}


def install(folder: Path) -> Path:
    """Ansible and pyinfra in an environment of their own; the folder of its programs."""
    venv.create(folder, with_pip=True)
    command = [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    subprocess.run(command, check=True)
    return folder / "bin"


def ours(folder: Path, farm: Farm, hosts: Sequence[LoopbackHost]) -> Rival:
    """`invoke play job`, whose tasks do at least what the job says: also checked, journalled and locked."""
    project = folder / f"project-{len(hosts)}"
    (project / "playbooks").mkdir(parents=True)
    shutil.copy(ROOT / "tasks.py", project / "tasks.py")  # the project is where this file is
    (project / "patches").symlink_to(ROOT / "patches")
    tasks = "".join(f"  - {name}:\n" for name in ("doctor", "plan", "backup", "patch", "rollback"))
    (project / "playbooks/job.yaml").write_text(f"name: job\ntasks:\n{tasks}")
    entries = "".join(
        f"  {host.name}: {{port: {host.port}, python: {host.python}, sglang: {host.package}, log: {host.home}/log}}\n"
        for host in hosts
    )
    (project / "inventory.yaml").write_text(
        f"defaults: {{address: 127.0.0.1, user: {farm.user}, key: {farm.key}, known_hosts: {farm.known_hosts},"
        f" ssh_config: false}}\ngroups: {{all: [{', '.join(host.name for host in hosts)}]}}\nhosts:\n{entries}"
    )
    invoke = Path(sys.executable).with_name("invoke")
    env = environment(folder, PYTHONPATH=str(ROOT), EAGLELAB_LOOPBACK_ONLY="1", EAGLELAB_HOST="all")
    return Rival("eaglelab", [str(invoke), "play", "job"], project, env)


def ansible(folder: Path, farm: Farm, hosts: Sequence[LoopbackHost], bin_: Path) -> Rival:
    """Tuned: pipelining, ControlPersist, a fork for each host, no facts."""
    project = folder / f"ansible-{len(hosts)}"
    project.mkdir(parents=True)
    lines = [
        f"{host.name} ansible_host=127.0.0.1 ansible_port={host.port} worker={host.worker} "
        f"ansible_python_interpreter={sys.executable}"
        for host in hosts
    ]
    (project / "hosts").write_text("[all]\n" + "\n".join(lines) + "\n")
    ssh = f"-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile={farm.known_hosts} -F none"
    (project / "ansible.cfg").write_text(
        f"[defaults]\ninventory=hosts\nforks={len(hosts)}\ngathering=explicit\nremote_user={farm.user}\n"
        f"private_key_file={farm.key}\n[ssh_connection]\npipelining=True\nssh_args={ssh}\n"
        f"control_path_dir={project}/cp\n"
    )
    reads = "".join(f"    - command: sed -n {lines} {{{{ worker }}}}\n" for lines in RANGES)
    inserts = "".join(
        f"    - lineinfile: {{path: '{{{{ worker }}}}', insertafter: '{anchor}', line: '{INSERTED} {number}'}}\n"
        for number, anchor in enumerate(ANCHORS)
    )
    (project / "job.yaml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "    - copy: {src: '{{ worker }}', dest: '{{ worker }}.bak', remote_src: true, mode: preserve}\n"
        f"{reads}{inserts}"
        f"    - command: {sys.executable} -m py_compile {{{{ worker }}}}\n"
        "    - stat: {path: '{{ worker }}', checksum_algorithm: sha256}\n"
        "    - copy: {src: '{{ worker }}.bak', dest: '{{ worker }}', remote_src: true, mode: preserve}\n"
    )
    command = [str(bin_ / "ansible-playbook"), "job.yaml"]
    return Rival("Ansible", command, project, environment(folder, ANSIBLE_CONFIG=str(project / "ansible.cfg")))


def pyinfra(folder: Path, farm: Farm, hosts: Sequence[LoopbackHost], bin_: Path) -> Rival:
    """All hosts in parallel, which it does by itself."""
    project = folder / f"pyinfra-{len(hosts)}"
    project.mkdir(parents=True)
    rows = "".join(
        f"    ({host.name!r}, {{'ssh_hostname': '127.0.0.1', 'ssh_port': {host.port}, 'worker': {str(host.worker)!r}}}),\n"
        for host in hosts
    )
    shared = f"{{'ssh_user': {farm.user!r}, 'ssh_key': {str(farm.key)!r}, 'ssh_known_hosts_file': {str(farm.known_hosts)!r}}}"
    (project / "inventory.py").write_text(f"hosts = ([\n{rows}], {shared})\n")
    reads = "".join(f'server.shell(commands=[f"sed -n {lines} {{worker}}"])\n' for lines in RANGES)
    inserts = "".join(
        f"files.block(path=worker, line={anchor!r}, content={INSERTED + ' ' + str(number)!r}, after=True, "
        f"marker='# {{mark}} {number}', try_prevent_shell_expansion=True)\n"
        for number, anchor in enumerate(ANCHORS)
    )
    (project / "job.py").write_text(
        "from pyinfra import host\nfrom pyinfra.operations import files, server\n\nworker = host.data.worker\n"
        'server.shell(commands=[f"cp -p {worker} {worker}.bak"])\n'
        f"{reads}{inserts}"
        f'server.shell(commands=[f"{sys.executable} -m py_compile {{worker}}"])\n'
        'server.shell(commands=[f"sha256sum {worker}"])\n'
        'server.shell(commands=[f"cp -p {worker}.bak {worker}"])\n'
    )
    command = [str(bin_ / "pyinfra"), "-y", "inventory.py", "job.py"]
    return Rival("pyinfra", command, project, environment(folder))
