"""Reads inventory.yaml: defaults, then groups in the order of the file, then the host; later ones win."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from eaglelab.checking import check
from eaglelab.errors import InputError
from eaglelab.host import Host, HostSettings, Placeholder, Server, Speculative
from eaglelab.nearest import did_you_mean
from eaglelab.probe_variables import why_no_count
from eaglelab.server.command import OWN_FLAGS, RENDEZVOUS_FLAGS
from eaglelab.yamlfile import Key, Located, load

__all__ = ["Host", "Inventory", "Server", "Speculative", "load_inventory"]

_SECTIONS = ("default_host", "defaults", "groups", "hosts")


@dataclass(frozen=True)
class Unset:
    """The value `!unset what is missing` in the file."""

    text: str


@dataclass(frozen=True)
class Layer:
    """Settings and where in the file they stand."""

    settings: Mapping[str, Any]
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Inventory:
    """All hosts, and the groups of them by name, each in the order of the file."""

    path: Path
    hosts: Mapping[str, Host]
    groups: Mapping[str, tuple[str, ...]]
    default_host: str | None
    default_where: str = ""

    def select(self, names: str | None, *, env: Mapping[str, str]) -> list[Host]:
        """The hosts that `--host NAME[,NAME]` means (hosts or groups), else EAGLELAB_HOST, else `default_host`.

        Each host once, in the order named. Raises InputError for a name that is not known.
        """
        asked, where = names, "--host"
        if asked is None and "EAGLELAB_HOST" in env:  # set but empty is a slip, and must not mean the default host
            asked, where = env["EAGLELAB_HOST"], "EAGLELAB_HOST"
        if asked is None:
            asked, where = self.default_host, self.default_where
        if asked is None:
            hint = f"--host NAME, or a line `default_host: NAME` in the file; {self._known()}"
            raise InputError("no host is named and there is no default host", where=str(self.path), hint=hint)
        chosen: dict[str, Host] = {}
        for name in (part.strip() for part in asked.split(",")):
            for member in self._members(name, where):
                chosen[member] = self.hosts[member]
        return list(chosen.values())

    def _members(self, name: str, where: str) -> tuple[str, ...]:
        if name in self.hosts:
            return (name,)
        if self.groups.get(name):
            return self.groups[name]
        if name in self.groups:
            raise InputError(f"group '{name}' has no hosts", where=where, hint=self._known())
        if not name:
            raise InputError("a host name is empty", where=where, hint=self._known())
        hint = did_you_mean(name, [*self.hosts, *self.groups], label="hosts and groups")
        raise InputError(f"unknown host or group '{name}'", where=where, hint=hint)

    def _known(self) -> str:
        return f"hosts and groups: {', '.join([*self.hosts, *self.groups])}"


def load_inventory(path: Path) -> Inventory:
    """Reads and checks an inventory file. Raises InputError with file, line and what was meant."""
    doc = load(path, tags={"!unset": Unset})
    top = _mapping(doc, doc.value)
    for key in top:
        if key not in _SECTIONS:
            raise doc.problem(f"unknown key '{key}'", key, hint=did_you_mean(key, _SECTIONS, label="known keys"))
    defaults = _layer(doc, top.get("defaults"), "defaults")
    entries = {
        name: _layer(doc, entry, "hosts", name) for name, entry in _mapping(doc, top.get("hosts"), "hosts").items()
    }
    if not entries:
        raise doc.problem(
            "the inventory has no hosts", "hosts", hint="add `hosts:`, below it a name, and below that `address: ...`"
        )
    groups, group_layers = _groups(doc, _mapping(doc, top.get("groups"), "groups"), list(entries))
    hosts = {}
    for name, entry in entries.items():
        above = [layer for group, layer in group_layers.items() if name in groups[group]]
        hosts[name] = _host(doc, name, [defaults, *above, entry])
    return Inventory(path, hosts, groups, *_default(doc, top, [*hosts, *groups]))


def _default(doc: Located, top: Mapping[str, Any], known: list[str]) -> tuple[str | None, str]:
    name = top.get("default_host")
    if name is not None and name not in known:
        hint = did_you_mean(str(name), known, label="hosts and groups")
        raise doc.problem(f"default_host names an unknown host or group '{name}'", "default_host", hint=hint)
    return name, doc.where("default_host")


def _groups(
    doc: Located, section: Mapping[str, Any], known: list[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, Layer]]:
    members: dict[str, tuple[str, ...]] = {}
    layers: dict[str, Layer] = {}
    for name, entry in section.items():
        keys: tuple[Key, ...] = ("groups", name)
        _check_name(doc, name, *keys)
        if name in known:
            raise doc.problem(f"'{name}' is both a host and a group", *keys, hint="rename one of them")
        settings: dict[str, Any] = {}
        hosts = entry
        if not isinstance(entry, list):
            settings = dict(_mapping(doc, entry, *keys))
            hosts = settings.pop("hosts", None)
            keys = (*keys, "hosts")
        if not isinstance(hosts, list):
            hint = "add `hosts: [HOST, HOST]`"
            raise doc.problem(f"group '{name}' does not list its hosts", *keys, hint=hint)
        for index, host in enumerate(hosts):
            if host not in known:
                hint = did_you_mean(str(host), known, label="hosts")
                raise doc.problem(f"group '{name}' names an unknown host '{host}'", *keys, index, hint=hint)
        members[name] = tuple(hosts)
        layers[name] = _layer(doc, settings, "groups", name)
        nodes = (_without_unset(settings).get("server") or {}).get("nnodes", 1)
        if nodes > 1 and nodes != len(set(hosts)):
            what = f"server.nnodes is {nodes}, and group '{name}' has {len(set(hosts))} hosts"
            hint = f"name {nodes} hosts, in the order of their ranks"
            raise doc.problem(what, "groups", name, "server", "nnodes", hint=hint)
    return members, layers


def _layer(doc: Located, data: object, *keys: Key) -> Layer:
    """Each layer is checked by itself, so that an error points at the line that is wrong and not at the host."""
    settings = _mapping(doc, data, *keys)
    if keys[0] == "hosts":
        _check_name(doc, str(keys[1]), *keys)
    given = _without_unset(settings)
    if not _is_right(given):
        check(HostSettings, given, doc, *keys)  # says what is wrong
    return Layer(settings, keys)


def _is_right(settings: Mapping[str, Any]) -> bool:
    """By the model that hosts are built with anyway: pydantic takes milliseconds to make one more of that size."""
    if "name" in settings:
        return False
    try:
        Host.model_validate({**settings, "name": "any"})
    except ValidationError:
        return False
    return True


def _host(doc: Located, name: str, layers: list[Layer]) -> Host:
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merge(merged, layer.settings)

    def source(loc: tuple[str, ...]) -> tuple[Key, ...]:
        """Where the value that won stands."""
        for layer in reversed(layers):
            if _holds(layer.settings, loc):
                return (*layer.keys, *loc)
        return layers[-1].keys

    placeholders = {
        ".".join(loc): Placeholder(unset.text, doc.where(*source(loc))) for loc, unset in _find_unset(merged)
    }
    host = Host.build(name, _without_unset(merged), placeholders, doc.where("hosts", name))
    for loc, what, hint in _conflicts(host):
        raise doc.problem(f"{what} (host '{name}')", *source(loc), hint=hint)
    return host


def _conflicts(host: Host) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Settings that are fine alone and wrong together: key, sentence, hint."""
    if host.connection == "ssh" and host.address is None and "address" not in host.unset():
        yield ("address",), "there is no address to connect to", "address: NAME or IP, or connection: local"
    if host.sudo and host.python.startswith("~"):
        yield ("python",), "with sudo, whose home folder `~` would be is not clear", "write the whole path of python"
    if host.ready_timeout < host.expected_load:
        what = f"ready_timeout {host.ready_timeout:g} s ends before the expected load of {host.expected_load:g} s"
        yield ("ready_timeout",), what, "raise ready_timeout or lower expected_load"
    speculative = host.server.speculative
    if speculative is not None and speculative.eagle_topk == 1:
        tokens, wanted = speculative.num_draft_tokens, speculative.num_steps + 1
        if tokens is not None and tokens != wanted:
            what = f"num_draft_tokens is {tokens}; with eagle_topk 1 SGLang uses num_steps + 1 = {wanted}"
            yield ("server", "speculative", "num_draft_tokens"), what, "remove num_draft_tokens"
    for name, value in host.server.env.items():
        why = why_no_count(name, value)
        if why is not None:
            yield ("server", "env", name), why, f"{name}: '4', for instance (docs/probe.md)"
    yield from _node_conflicts(host)
    if host.server.launcher == "container":
        yield from _container_conflicts(host)
    for flag in host.server.flags:
        if flag in OWN_FLAGS:
            yield ("server", "flags", flag), f"flag {flag} is set by {OWN_FLAGS[flag]}", f"use {OWN_FLAGS[flag]}"


def _node_conflicts(host: Host) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Of a host that is one node of a server."""
    server = host.server
    if server.nnodes == 1:
        return
    if server.gpus % server.nnodes:
        what = f"{server.gpus} GPUs in all (tp_size) cannot be shared out evenly to {server.nnodes} nodes"
        yield ("server", "nnodes"), what, "tp_size counts the GPUs of all nodes together"
    if server.launcher == "slurm":
        what = "a server of several nodes is not started through Slurm here"
        yield ("server", "launcher"), what, "launcher: process, systemd or container, on each node"
    for flag in RENDEZVOUS_FLAGS:
        if flag in server.flags:
            what = f"flag {flag} is given here where server.nnodes is {server.nnodes}"
            yield ("server", "flags", flag), what, "use server.dist_init_host and server.dist_init_port"


def _container_conflicts(host: Host) -> Iterator[tuple[tuple[str, ...], str, str]]:
    server = host.server
    if server.container.image is None:
        yield ("server", "launcher"), "launcher container has no image to run", "server: container: image: NAME:TAG"
    if host.sglang is not None:
        yield ("sglang",), "the server runs the image's SGLang, not this one", "remove sglang"
    paths: dict[tuple[str, ...], str | None] = {("server", "model_path"): server.model_path}
    if server.speculative is not None:
        paths["server", "speculative", "draft_model_path"] = server.speculative.draft_model_path
    for key, path in paths.items():
        seen = [folder for folder in server.container.folders if f"{path}/".startswith(f"{folder.rstrip('/')}/")]
        if path is not None and path.startswith(("/", "~")) and not seen:
            yield key, f"the container does not see {path}", "name its folder in server.container.folders"


def _mapping(doc: Located, data: object, *keys: Key) -> dict[str, Any]:
    if data is None and keys:
        return {}
    if not isinstance(data, dict):
        name = f"'{'.'.join(map(str, keys))}'" if keys else "the file"
        hint = "indent its keys below it" if keys else f"its keys are {', '.join(_SECTIONS)}"
        raise doc.problem(f"{name} must be a mapping (`key: value` lines)", *keys, hint=hint)
    return data


def _check_name(doc: Located, name: str, *keys: Key) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise doc.problem(f"'{name}' cannot be a name", *keys, hint="letters, digits and . _ - only")


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key; anything else in `above`, lists too, replaces what is below."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _holds(data: object, loc: tuple[str, ...]) -> bool:
    for key in loc:
        if not isinstance(data, Mapping) or key not in data:
            return False
        data = data[key]
    return True


def _find_unset(data: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Unset]]:
    for key, value in data.items():
        if isinstance(value, Unset):
            yield (*above, key), value
        elif isinstance(value, dict):
            yield from _find_unset(value, (*above, key))


def _without_unset(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_unset(value) if isinstance(value, dict) else value
        for key, value in data.items()
        if not isinstance(value, Unset)
    }
