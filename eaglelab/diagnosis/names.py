"""The names of facts: what each stands for, what kind of value it has, and how that is written in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["NAMES", "Name", "Value"]

Value = bool | int | float | str | tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """What values of a kind are, and how one is written."""

    name: str
    types: tuple[type, ...]
    write: Callable[[Value], str]


@dataclass(frozen=True)
class Name:
    """A fact's name. `meaning` begins a line of evidence. `each`: every setting has its own."""

    kind: Kind
    meaning: str
    each: bool

    def fits(self, value: object) -> bool:
        """Whether the value is of the kind; a list counts as a tuple."""
        value = tuple(value) if isinstance(value, list) else value
        return isinstance(value, self.kind.types) and (bool in self.kind.types or not isinstance(value, bool))

    def checked(self, value: object) -> Value:
        """The value, lists made tuples. Raises TypeError where it is not of the kind."""
        if not self.fits(value):
            raise TypeError(f"{self.meaning}: {value!r} is no {self.kind.name}")
        return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]

    def words(self, value: Value) -> str:
        """The value as it stands in a sentence."""
        return self.kind.write(value)


def _decimals(count: int, factor: float = 1.0, unit: str = "") -> Callable[[Value], str]:
    def write(value: Value) -> str:
        return f"{factor * float(value):.{count}f}{unit}"  # type: ignore[arg-type]

    return write


def _joined(value: Value) -> str:
    parts = ", ".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
    return parts or "none"


def _numbers(value: Value) -> str:
    return f"[{_joined(value)}]"


def _gib(value: Value) -> str:
    return f"{float(value) / 2**30:.1f} GiB"  # type: ignore[arg-type]


def _yes(value: Value) -> str:
    return "yes" if value else "no"


_NUMBER = (int, float)
TEXT = Kind("text", (str,), _joined)
FLAG = Kind("true or false", (bool,), _yes)
COUNT = Kind("whole number", (int,), str)
RATIO = Kind("number", _NUMBER, _decimals(2))
TIMES = Kind("number of times", _NUMBER, _decimals(2, unit=" times"))
MS = Kind("time in ms", _NUMBER, _decimals(2, unit=" ms"))
RATE = Kind("rate", _NUMBER, _decimals(1, unit=" tok/s"))
SHARE = Kind("share from 0 to 1", _NUMBER, _decimals(1, 100.0, " %"))
MHZ = Kind("clock in MHz", _NUMBER, _decimals(0, unit=" MHz"))
BYTES = Kind("number of bytes", _NUMBER, _gib)
WORDS = Kind("list of words", (tuple,), _joined)
NUMBERS = Kind("list of whole numbers", (tuple,), _numbers)


def _setting() -> Mapping[str, tuple[Kind, str]]:
    return {
        "setting": (TEXT, "setting"),
        "steps": (COUNT, "draft steps"),
        "batch": (COUNT, "requests at once"),
        "worker_class": (TEXT, "worker that ran"),
        "accept_length": (RATIO, "accept length (bonus included)"),
        "accept_verifies": (COUNT, "verifies behind it"),
        "accept_length_printed": (RATIO, "accept length as printed"),
        "accept_length_alone": (RATIO, "accept length of the same steps at the smallest batch"),
        "accept_length_cv": (SHARE, "spread of the accept length from round to round (standard deviation / mean)"),
        "accept_first_cycle": (RATIO, "tokens of the first cycle of a request, mean"),
        "accept_later_cycles": (RATIO, "tokens of a cycle from the fifth on, mean"),
        "accept_first_half": (RATIO, "tokens a cycle in the first half of the outputs"),
        "accept_second_half": (RATIO, "tokens a cycle in the second half of the outputs"),
        "first_draft_right": (SHARE, "cycles whose first draft token was right (S_1)"),
        "last_draft_right": (SHARE, "cycles in which every draft token was right (S_K)"),
        "cycles": (COUNT, "cycles measured"),
        "clock": (TEXT, "phases timed by"),
        "synchronised": (FLAG, "EAGLE3_PROFILE_SYNC on"),
        "cycle_ms": (MS, "cycle"),
        "draft_ms": (MS, "draft"),
        "verify_ms": (MS, "verify"),
        "extend_ms": (MS, "extend"),
        "other_ms": (MS, "other"),
        "draft_share": (SHARE, "draft's share of the cycle"),
        "verify_share": (SHARE, "verify's share of the cycle"),
        "other_share": (SHARE, "other's share of the cycle"),
        "draft_slope_ms": (MS, "draft time for one step more"),
        "draft_slope_share": (SHARE, "that, of a step without speculation"),
        "graph_share": (SHARE, "cycles with a CUDA graph"),
        "graph_eager": (COUNT, "cycles without a CUDA graph"),
        "plain_ms": (MS, "a step without speculation"),
        "verify_over_plain": (TIMES, "verify / a step without speculation"),
        "cycle_over_plain": (RATIO, "accept length at which speculation breaks even"),
        "tok_s": (RATE, "throughput"),
        "plain_tok_s": (RATE, "throughput without speculation"),
        "speedup": (TIMES, "throughput / that without speculation"),
        "best_speedup": (TIMES, "the best speed-up of any step count at this batch"),
        "best_steps": (COUNT, "the best step count at this batch"),
        "best_gain": (SHARE, "what it gives more"),
        "skew_ms": (MS, "verify: slowest rank - fastest rank"),
        "skew_share": (SHARE, "that, of the cycle"),
        "straggler_rank": (COUNT, "rank with the shortest verify (the others wait for it)"),
        "ranks_apart": (COUNT, "cycles by which the ranks' counts differ"),
        "requests": (COUNT, "requests"),
        "failed_requests": (COUNT, "requests without an answer"),
        "distinct_outputs": (COUNT, "different outputs"),
        "repeated": (SHARE, "8-grams of the worst output that occurred before in it"),
        "output_tokens": (COUNT, "output tokens of all requests"),
        "longest_text": (COUNT, "tokens of the longest request, prompt and output"),
        "cached_share": (SHARE, "prompt tokens from the prefix cache"),
        "plain_cached_share": (SHARE, "prompt tokens from the prefix cache without speculation"),
        "client_busy_share": (SHARE, "time in which the load's client was busy"),
        "closure_difference": (SHARE, "probe's throughput / the clients' - 1"),
        "earlier": (TEXT, "run to compare with"),
        "earlier_accept_length": (RATIO, "accept length then"),
        "earlier_tok_s": (RATE, "throughput then"),
        "earlier_cycle_ms": (MS, "cycle then"),
        "earlier_draft_ms": (MS, "draft then"),
        "earlier_verify_ms": (MS, "verify then"),
        "earlier_graph_share": (SHARE, "cycles with a CUDA graph then"),
        "earlier_cached_share": (SHARE, "prompt tokens from the prefix cache then"),
        "earlier_other_ms": (MS, "other then"),
        "earlier_worker_class": (TEXT, "worker then"),
        "earlier_sglang": (TEXT, "SGLang then"),
    }


def _whole() -> Mapping[str, tuple[Kind, str]]:
    return {
        "sglang": (TEXT, "SGLang"),
        "python_version": (TEXT, "Python"),
        "torch_version": (TEXT, "PyTorch"),
        "driver_version": (TEXT, "driver"),
        "algorithm": (TEXT, "speculative algorithm"),
        "topk": (COUNT, "top-k"),
        "configured_steps": (COUNT, "draft steps in use"),
        "served_steps": (COUNT, "draft steps that the server was started with"),
        "draft_tokens": (COUNT, "draft tokens"),
        "baseline": (FLAG, "measured without speculation too"),
        "batches": (NUMBERS, "batch sizes measured"),
        "best_steps_differ": (FLAG, "the best step count depends on the batch"),
        "best_steps_words": (TEXT, "best step counts"),
        "wins_up_to_batch": (COUNT, "largest batch at which speculation wins"),
        "loses_from_batch": (COUNT, "smallest batch at which it loses"),
        "worker_expected": (TEXT, "worker that this release runs with these flags"),
        "worker_reason": (TEXT, "because"),
        "worker_files": (WORDS, "worker files there"),
        "worker_file_expected": (TEXT, "file of that worker"),
        "worker_ran": (TEXT, "worker that ran"),
        "worker_file_ran": (TEXT, "file of the worker that ran"),
        "patched_files": (WORDS, "patched files"),
        "overlap_disabled": (FLAG, "overlap schedule off"),
        "spec_v1_reason": (TEXT, "why the worker without overlap ran"),
        "adaptive": (FLAG, "step counts change at run time"),
        "adaptive_ours": (FLAG, "the step count is chosen by request (one-load sweep)"),
        "graph_disabled": (FLAG, "CUDA graphs off"),
        "captured_batch": (COUNT, "largest captured batch"),
        "largest_batch": (COUNT, "largest batch asked for"),
        "max_running_requests": (COUNT, "most requests that the server runs at once"),
        "attention_backend": (TEXT, "attention backend"),
        "nccl_settings": (WORDS, "NCCL settings"),
        "nccl_matters": (FLAG, "NCCL carries an all-reduce of decode"),
        "nccl_reason": (TEXT, "because"),
        "nccl_version": (TEXT, "NCCL"),
        "nccl_conflict": (TEXT, "what NCCL would not do"),
        "nccl_fatal": (FLAG, "the server dies of it in any case"),
        "nccl_instead": (TEXT, "NCCL_ALGO that it would take"),
        "world": (COUNT, "ranks"),
        "tp_size": (COUNT, "tp_size"),
        "disaggregation": (TEXT, "disaggregation mode"),
        "temperature": (RATIO, "temperature"),
        "top_p": (RATIO, "top-p"),
        "random_prompts": (FLAG, "prompts of random tokens"),
        "prompt_source": (TEXT, "prompts"),
        "grammar": (FLAG, "requests ask for structured output"),
        "ignore_eos": (FLAG, "requests run on past the end of the text"),
        "draft_path": (TEXT, "draft"),
        "draft_architecture": (TEXT, "architecture of the draft"),
        "draft_target_hidden_size": (COUNT, "hidden size of the target that the draft is made for"),
        "draft_vocab_size": (COUNT, "vocabulary of the draft"),
        "draft_max_positions": (COUNT, "positions that the draft knows"),
        "draft_dtype": (TEXT, "dtype of the draft"),
        "draft_quantisation": (TEXT, "quantisation of the draft"),
        "draft_aux_layers": (NUMBERS, "hidden-state layers in the draft's config"),
        "draft_says_layers": (FLAG, "the draft's config names hidden-state layers"),
        "draft_norm_before_fc": (FLAG, "the draft normalises hidden states before its first layer"),
        "target_path": (TEXT, "target"),
        "target_architecture": (TEXT, "architecture of the target"),
        "target_hidden_size": (COUNT, "hidden size of the target"),
        "target_vocab_size": (COUNT, "vocabulary of the target"),
        "target_layers": (COUNT, "layers of the target"),
        "target_max_positions": (COUNT, "positions that the target knows"),
        "target_dtype": (TEXT, "dtype of the target"),
        "target_quantisation": (TEXT, "quantisation of the target"),
        "target_experts": (COUNT, "experts of the target"),
        "target_experts_per_token": (COUNT, "experts a token"),
        "captured_layers": (NUMBERS, "where SGLang takes hidden states (inputs of these layers)"),
        "default_layers": (NUMBERS, "where it takes them of this target without such a config"),
        "context_length": (COUNT, "context length of the server"),
        "draft_tokens_set": (COUNT, "num_draft_tokens in the inventory"),
        "unknown_flags": (WORDS, "flags that this release does not know"),
        "flags_known": (COUNT, "flags that this release knows"),
        "flags_given": (COUNT, "flags given"),
        "flag_meant": (WORDS, "the nearest that it knows"),
        "gpus_seen": (COUNT, "GPUs seen"),
        "gpus_asked": (COUNT, "GPUs asked for, on all nodes"),
        "gpus_asked_here": (COUNT, "GPUs asked for on this machine"),
        "gpu_names": (WORDS, "GPUs"),
        "gpu_memory_total": (BYTES, "memory of a GPU"),
        "gpu_memory_used": (BYTES, "memory in use on the fullest GPU that the server would take"),
        "gpu_memory_used_share": (SHARE, "that, of the GPU's memory"),
        "weights_bytes": (BYTES, "weights of target and draft on disk"),
        "weights_share": (SHARE, "that, of the memory of the GPUs asked for"),
        "throttle_reasons": (WORDS, "what holds the GPUs' clocks back"),
        "throttled": (FLAG, "clocks held back by heat or power"),
        "power_capped": (FLAG, "clocks held at the power limit"),
        "sm_clock_before": (MHZ, "SM clock before"),
        "sm_clock_after": (MHZ, "SM clock after"),
        "sm_clock_apart": (SHARE, "SM clocks of the GPUs apart, while they ran"),
        "retractions": (COUNT, "times requests were thrown back because the KV cache was full"),
        "stalls": (COUNT, "times a watchdog found the server stuck"),
        "memory_errors": (COUNT, "times memory ran out"),
        "log_notes": (WORDS, "the log says"),
        "own_all_reduce_off": (TEXT, "SGLang's own all-reduce is off"),
        "draft_positions_raised": (TEXT, "positions of the draft raised"),
        "draft_tokens_adjusted": (TEXT, "draft tokens changed by SGLang"),
        "graph_failed": (TEXT, "capturing graphs failed"),
        "adaptive_refused": (TEXT, "several step counts refused"),
        "context_stretched": (TEXT, "context length raised above the model's"),
        "steps_changes": (COUNT, "times the step count changed by itself"),
        "accept_rate_means": (TEXT, "accept rate in this release's log"),
        "sources_disagree": (TEXT, "sources of the accept length"),
        "earlier_driver_version": (TEXT, "driver then"),
        "earlier_attention_backend": (TEXT, "attention backend then"),
        "earlier_sm_clock_after": (MHZ, "SM clock then"),
        "earlier_temperature": (RATIO, "temperature then"),
        "earlier_prompt_source": (TEXT, "prompts then"),
        "earlier_draft_path": (TEXT, "draft then"),
        "disk_free": (BYTES, "free disk, at the place with least"),
        "disk_free_where": (TEXT, "that place"),
        "port": (COUNT, "port"),
        "port_holder": (TEXT, "who holds the port"),
        "server_ours": (FLAG, "a server of eaglelab's runs there"),
    }


NAMES: Mapping[str, Name] = MappingProxyType(
    {
        **{name: Name(kind, meaning, True) for name, (kind, meaning) in _setting().items()},
        **{name: Name(kind, meaning, False) for name, (kind, meaning) in _whole().items()},
    }
)
"""Every name that a rule may use."""
