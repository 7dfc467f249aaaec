"""What SGLang's releases mean by the accept length, source by source. Read from the releases' own code.

Every one of them counts the bonus token, so the lengths can be compared. An accept *rate* cannot: it has had three
definitions, and is not used anywhere here.
"""

from __future__ import annotations

import re

__all__ = ["definition"]

_ERAS: dict[str, tuple[tuple[str, str], ...]] = {
    "probe": (("0", "1 + correct drafts / verifies over all measured decode cycles; v1 cuts a request's last verify"),),
    "meta_info": (
        ("0.4.2", "(completion_tokens - requests) / spec_verify_ct: a last verify counts up to the request's end"),
        ("0.5.4", "1 + spec_accept_token_num / spec_verify_ct of the requests: a last verify counts whole"),
        ("0.5.12", "1 + spec_num_correct_drafts / spec_verify_ct of the requests: a last verify counts whole"),
    ),
    "server_info": (
        ("0.4.3.post3", "/get_server_info: tokens / verifies since start or flush, all requests; first DP rank only"),
        (
            "0.5.6",
            "/server_info (or its old name): tokens / verifies since start or flush, all requests; first DP rank only",
        ),
    ),
    "decode_lines": (("0.4.1.post7", "mean of the log's `accept len`, each tokens / verifies since the line before"),),
    "metrics": (("0.4.3", "gauge sglang:spec_accept_length: tokens / verifies of the last logged interval alone"),),
}


def definition(source: str, release: str | None) -> str:
    """The definition that holds for a release, the newest where it is not known; one without it says since when.

    Raises KeyError for an unknown source.
    """
    eras = _ERAS[source]
    number = None if release is None else _number(release)
    if number is None:
        return eras[-1][1]
    known = [text for since, text in eras if (_number(since) or ()) <= number]
    return known[-1] if known else f"not there before {eras[0][0]}"


def _number(release: str) -> tuple[int, ...] | None:
    """`0.4.3.post3` as (0, 4, 3, 3), so that releases compare; None for what names no release (`main`, `0.0.0.dev1`)."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?", release)
    number = tuple(int(part or 0) for part in match.groups()) if match else (0,)
    return number if any(number) else None
