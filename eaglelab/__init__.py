"""Remote profiling and tuning of speculative decoding on SGLang servers."""

from __future__ import annotations

__version__ = "0.1.0"
