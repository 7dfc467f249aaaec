"""The model file of the simulated GPU, checked (`default-model.yaml` explains the fields)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from eaglelab.errors import InputError

__all__ = ["DEFAULT_MODEL", "Model", "read_model"]

DEFAULT_MODEL = Path(__file__).resolve().parent / "default-model.yaml"

Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(gt=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GpuCosts(_Part):
    """Milliseconds of GPU time; `verify` by step count; `jitter` and `growth_per_request` are shares."""

    plain: Milliseconds
    draft_forward: Milliseconds
    verify: dict[int, Milliseconds] = Field(min_length=1)
    extend: Milliseconds
    copy_: Milliseconds = Field(alias="copy")
    prefill: Milliseconds
    prefill_token: Milliseconds
    growth_per_request: Share
    jitter: Annotated[float, Field(ge=0, lt=1)]


class HostCosts(_Part):
    """Milliseconds for which the host is busy."""

    draft: Milliseconds
    verify: Milliseconds
    extend: Milliseconds
    schedule: Milliseconds
    overlap: Milliseconds


class AcceptanceModel(_Part):
    """Survival S_1, S_2, ...: shares that never rise."""

    seed: int
    survival: list[Share] = Field(min_length=1)

    @field_validator("survival")
    @classmethod
    def _never_rises(cls, survival: list[float]) -> list[float]:
        if any(later > earlier for earlier, later in pairwise(survival)):
            raise ValueError("a share of cycles with at least k right drafts cannot rise with k")
        return survival


class Model(_Part):
    """All of it."""

    gpus: Count
    gpu_memory_mib: Count
    weights_mib: Count
    kv_cache_tokens: Count
    vocabulary: Count
    context_length: Count
    gpu_ms: GpuCosts
    host_ms: HostCosts
    acceptance: AcceptanceModel

    def as_settings(self) -> dict[str, object]:
        """The model as the lab host reads it (JSON: the step counts of `verify` become text)."""
        return self.model_dump(by_alias=True)


def read_model(file: Path | None = None) -> Model:
    """Read and check a model file; None is the lab's own.

    Raises:
        InputError: it is missing, is not YAML, or a field is wrong.
    """
    file = file or DEFAULT_MODEL
    try:
        return Model.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"cannot read the model: {error.strerror}", where=str(file)) from error
    except yaml.YAMLError as error:
        raise InputError(f"not YAML: {error}", where=str(file)) from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{field}: {first['msg']}", where=str(file), hint=f"compare with {DEFAULT_MODEL}") from error
