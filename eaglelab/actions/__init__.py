"""Everything that a playbook can name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from eaglelab.actions.base import Action
from eaglelab.actions.bench_serving import BENCH_SERVING
from eaglelab.actions.doctor import DOCTOR
from eaglelab.actions.evidence import FETCH_LOGS, PROVE, REPORT
from eaglelab.actions.generate import GENERATE
from eaglelab.actions.measure import MEASURE
from eaglelab.actions.patch import BACKUP, PATCH
from eaglelab.actions.plan import PLAN
from eaglelab.actions.serve import CHECK_OWNER, CHECK_SERVER, START, STOP
from eaglelab.actions.serving_client import CHECK_BENCH_SERVING
from eaglelab.actions.undo import FAIL, ROLLBACK
from eaglelab.actions.wait import WAIT

__all__ = ["ACTIONS"]

_ALL = (
    DOCTOR,
    PLAN,
    CHECK_OWNER,
    BACKUP,
    PATCH,
    CHECK_SERVER,
    STOP,
    START,
    WAIT,
    GENERATE,
    MEASURE,
    CHECK_BENCH_SERVING,
    BENCH_SERVING,
    PROVE,
    FETCH_LOGS,
    REPORT,
    ROLLBACK,
    FAIL,
)

ACTIONS: Mapping[str, Action] = MappingProxyType({action.name: action for action in _ALL})
