"""Pure: the bytes of a file in, line-anchored edits out."""

from __future__ import annotations
