"""Which SGLang a server started here would run, and which others its Python has. Nothing of them is imported."""

from __future__ import annotations

import json
import marshal
import os
import re
import subprocess
from typing import Any, Iterator

from eaglelab.remote.agent.wire import AgentError

__all__ = ["find_installation"]

_NEUTRAL = "/"
"""Python looks into the current folder first, and a home may well have a checkout in a folder named sglang."""

_SCRIPT = """
import importlib.util, marshal, os, sys
spec = importlib.util.find_spec('sglang')
installed = []
def there(entry):
    try:
        names = os.listdir(entry)
    except OSError:
        names = []
    return any(name.lower().startswith('sglang') and name.endswith('-info') for name in names + [os.path.basename(entry)])
try:
    if any(there(entry) or entry.endswith('.egg') for entry in sys.path if entry):  # else metadata takes long to find nothing
        from importlib import metadata
        for one in metadata.distributions(name='sglang'):
            installed.append([one.version, str(one.locate_file('')), one.read_text('direct_url.json')])
except Exception:
    pass  # what is said of an installation is a help; where the package is does not hang on it
found = {'origin': spec.origin if spec else None, 'path': [entry for entry in sys.path if entry], 'installed': installed}
print('SGLANG=' + marshal.dumps(found, 2).hex())
"""


def _ask(python: str, env: dict[str, str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [python, "-c", _SCRIPT],
            stdin=subprocess.DEVNULL,  # the agent's own stdin is the stream of requests
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=_NEUTRAL,
            env=dict(os.environ, **env),
            timeout=60,
        )
    except OSError as error:
        raise AgentError("no-python", "cannot run %s: %s" % (python, error.strerror)) from error
    except subprocess.TimeoutExpired as error:
        raise AgentError("no-python", "%s did not answer within 60 s" % python) from error
    found = re.search(rb"^SGLANG=([0-9a-f]+)$", done.stdout, re.M)
    if found is None:
        raise AgentError("no-python", "%s failed: %s" % (python, done.stderr.decode(errors="replace").strip()[-500:]))
    answer: dict[str, Any] = marshal.loads(bytes.fromhex(found.group(1).decode()))
    return answer


def find_installation(python: str, configured: str | None, env: dict[str, str]) -> dict[str, Any]:
    """The sglang package that a server started here, with `env` beside what it inherits, will run.

    `package` is its folder, `version` that of its files, `others` the folders of further ones that this Python has but does
    not import: hidden by the first on its path, or installed from a checkout. `path` is that path.
    Raises `no-sglang` if there is none, `other-sglang` if the configured checkout is not the one that Python imports:
    a patch there would never run.
    """
    answer = _ask(python, env)
    # A mere folder of that name (a namespace, to Python) has no origin and is no package.
    imported = os.path.realpath(os.path.dirname(answer["origin"])) if answer["origin"] else None
    package = _configured(python, configured, imported) if configured else imported
    if package is None:
        raise AgentError("no-sglang", "%s finds no package sglang" % python)
    others = {found for _, found, _ in _installed(answer) if found} | set(_on_path(answer))
    found = {"package": package, "version": _version(package, answer), "others": sorted(others - {package})}
    return {**found, "path": answer["path"]}


def _configured(python: str, configured: str, imported: str | None) -> str:
    base = os.path.expanduser(configured)
    package = _below(base)
    if package is None:
        raise AgentError(
            "no-sglang",
            "there is no SGLang package below %s (looked for python/sglang, sglang and srt); %s imports it from %s"
            % (base, python, imported or "nowhere"),
        )
    if imported != package:
        raise AgentError(
            "other-sglang",
            "%s imports sglang from %s, not from %s: a patch there would never run"
            % (python, imported or "nowhere", package),
        )
    return package


def _below(base: str) -> str | None:
    """The package in a checkout, in a folder that holds it, or that folder itself."""
    for candidate in (os.path.join(base, "python", "sglang"), os.path.join(base, "sglang"), base):
        if os.path.isdir(os.path.join(candidate, "srt")):
            return os.path.realpath(candidate)
    return None


def _on_path(answer: dict[str, Any]) -> Iterator[str]:
    for entry in answer["path"]:
        package = os.path.join(entry, "sglang")
        if os.path.isfile(os.path.join(package, "__init__.py")) and os.path.isdir(os.path.join(package, "srt")):
            yield os.path.realpath(package)


def _installed(answer: dict[str, Any]) -> Iterator[tuple[str, str | None, str]]:
    """Folder, package and version of what pip or uv have on record; an editable one lies in the checkout that it names."""
    for version, base, direct in answer["installed"]:
        if direct:
            from urllib.parse import unquote, urlsplit  # here, for the sake of every start that does not need it

            try:
                url = json.loads(direct)
                if url.get("dir_info", {}).get("editable"):
                    base = unquote(urlsplit(url["url"]).path)
            except (ValueError, KeyError, AttributeError):
                continue
        yield os.path.realpath(base), _below(base), version


def _version(package: str, answer: dict[str, Any]) -> str:
    """From the package's files: importing SGLang takes seconds and a GPU."""
    for name in ("_version.py", "version.py"):
        path = os.path.join(package, name)
        if os.path.exists(path):
            with open(path, errors="replace") as file:
                found = re.search(
                    r"^(?:__version__\s*=\s*)?(?:version\s*=\s*)?(?:__version__\s*=\s*)?[\"']([0-9][^\"']*)[\"']",
                    file.read(),
                    re.M,
                )
            if found:
                return found.group(1)
    parent = os.path.dirname(package)
    for name in sorted(os.listdir(parent)):
        found = re.match(r"sglang-([0-9].*)\.dist-info$", name)
        if found:
            return found.group(1)
    # A checkout whose version is made from its tags has it in the installation's record only.
    versions = [version for base, _, version in _installed(answer) if package.startswith(base + os.sep)]
    return versions[0] if versions else "unknown"
