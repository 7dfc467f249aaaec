"""Facts of a host before anything is loaded there: what doctor reads, and what the inventory asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from eaglelab.diagnosis.facts import Facts, Sheet
from eaglelab.diagnosis.of_gpus import put_clocks, used_by
from eaglelab.diagnosis.of_models import put_draft, put_target
from eaglelab.diagnosis.of_server import put_arguments, put_nccl, put_worker
from eaglelab.host import Host
from eaglelab.sweep.nccl_choice import nccl_conflict
from eaglelab.sweep.relevance import all_reduce_bytes, fully_linked

__all__ = ["facts_of_host"]

_MIB = 1 << 20


def facts_of_host(
    found: Mapping[str, Any], host: Host, *, clocks: Sequence[Mapping[str, Any]] = (), topology: str = ""
) -> Facts:
    """`found` is what the agent's `facts` says, `clocks` its `gpu_state`, `topology` what `nvidia-smi topo -m` prints."""
    sheet = Sheet()
    server = host.server
    sheet.take("sglang", found.get("sglang_version"), "the installation")
    sheet.take("python_version", found.get("python_version"), "the host")
    sheet.take("torch_version", found.get("torch_version"), "the host's environment")
    models = found.get("models") or {}
    put_target(sheet, models.get("target", {}).get("config") or {}, "config.json of the target")
    put_draft(sheet, models.get("draft", {}).get("config") or {}, "config.json of the draft")
    _put_inventory(sheet, host)
    put_worker(sheet, server.flags, server.env, "SGLang's release, flags and environment")
    files = [str(found_file["path"]).rpartition("/")[2] for found_file in found.get("files", {}).values()]
    sheet.put("worker_files", tuple(sorted(files)), "the installation")
    linked, hidden = fully_linked(topology) if topology else None, sheet.number("target_hidden_size")
    sizes = [] if hidden is None else [all_reduce_bytes(1, _steps(host), int(hidden))]
    put_nccl(sheet, {**server.flags, "nnodes": server.nnodes}, server.env, linked, sizes, "inventory.yaml")
    _put_nccl_conflict(sheet, found.get("nccl_version"), host)
    _put_flags(sheet, found, host)
    _put_gpus(sheet, found, host, clocks)
    _put_place(sheet, found, host)
    return Facts(sheet.facts)


def _steps(host: Host) -> int | None:
    return None if host.server.speculative is None else host.server.speculative.num_steps


def _put_inventory(sheet: Sheet, host: Host) -> None:
    server, source = host.server, "inventory.yaml"
    speculative = server.speculative
    sheet.put("tp_size", server.tp_size, source)
    sheet.put("gpus_asked", server.gpus, source)
    sheet.put("gpus_asked_here", server.gpus_a_node, source)
    sheet.put("target_path", server.model_path, source)
    if speculative is not None:
        sheet.put("algorithm", speculative.algorithm, source)
        sheet.put("topk", speculative.eagle_topk, source)
        sheet.put("configured_steps", speculative.num_steps, source)
        sheet.put("draft_tokens_set", speculative.num_draft_tokens, source)
        sheet.put("draft_path", speculative.draft_model_path, source)
    put_arguments(sheet, {name.replace("-", "_"): value for name, value in server.flags.items()}, source)


def _put_flags(sheet: Sheet, found: Mapping[str, Any], host: Host) -> None:
    sheet.put("flags_given", len(host.server.flags), "inventory.yaml")
    flags = found.get("flags")
    if flags:
        sheet.put("flags_known", flags["known"], "the installation's server_args.py")
        sheet.put("unknown_flags", tuple(flags["unknown"]), "the installation's server_args.py")
        near = tuple(name for name in flags["unknown"].values() if name)
        sheet.put("flag_meant", near or None, "the installation's server_args.py")


def _put_nccl_conflict(sheet: Sheet, version: str | None, host: Host) -> None:
    server = host.server
    sheet.put("nccl_version", version, "the host's environment")
    found = nccl_conflict(server.env, server.flags, world=server.tp_size, nodes=server.nnodes, version=version)
    if found is not None:
        sheet.put("nccl_conflict", found.why, "inventory.yaml")
        sheet.put("nccl_fatal", found.certain, "NCCL's sources")
        sheet.put("nccl_instead", found.instead, "inventory.yaml")


def _put_gpus(sheet: Sheet, found: Mapping[str, Any], host: Host, clocks: Sequence[Mapping[str, Any]]) -> None:
    gpus, source = found.get("gpus") or [], "nvidia-smi"
    if not gpus:
        return
    asked, visible = host.server.gpus_a_node, host.server.env.get("CUDA_VISIBLE_DEVICES")
    sheet.put("gpus_seen", len(gpus), source)
    sheet.put("gpu_names", tuple(sorted({str(gpu.get("name")) for gpu in gpus})), source)
    sheet.take("driver_version", gpus[0].get("driver_version"), source)
    mine = used_by(gpus, asked, visible)
    memory = [(_mib(gpu.get("memory.used")), _mib(gpu.get("memory.total"))) for gpu in mine]
    known = [(used, total) for used, total in memory if used is not None and total]
    if known:
        used, total = max(known, key=lambda pair: pair[0] / pair[1])
        sheet.put("gpu_memory_used", used, source)
        sheet.put("gpu_memory_total", total, source)
        sheet.put("gpu_memory_used_share", used / total, source)
        weights = sum(each.get("weights") or 0 for each in (found.get("models") or {}).values())
        if weights:
            sheet.put("weights_bytes", weights, "the files of both models")
            share = weights / (host.server.gpus * total)
            sheet.put("weights_share", share, "weights / GPU memory")
    put_clocks(sheet, (), used_by(clocks, asked, visible), "nvidia-smi now")


def _put_place(sheet: Sheet, found: Mapping[str, Any], host: Host) -> None:
    disks = found.get("disk_free") or {}
    if disks:
        where = min(disks, key=lambda name: disks[name])
        sheet.put("disk_free", disks[where], "the host")
        sheet.put("disk_free_where", where, "the host")
    sheet.put("port", host.server.port, "inventory.yaml")
    status = found.get("server") or {}
    sheet.put("server_ours", bool(found.get("port_is_ours") or status.get("alive")), "the state folder")
    holder = found.get("port_holder")
    if holder and not found.get("port_is_ours"):
        sheet.put("port_holder", f"pid {holder['pid']} of {holder['user']}", "the host")


def _mib(text: object) -> int | None:
    return int(text) * _MIB if isinstance(text, str) and re.fullmatch(r"\d+", text) else None
