"""Runs an Invoke command whose process gets SIGKILL after N tasks of its playbook: kill_after.py N COMMAND..."""

from __future__ import annotations

import os
import signal
import sys

from invoke import Program
from invoke.collection import Collection

from eaglelab.playbook import ActionTask
from eaglelab.runner import Runner

left = int(sys.argv[1])
perform = Runner._task


def counted(runner: Runner, task: ActionTask) -> None:
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    perform(runner, task)
    left -= 1


Runner._task = counted  # type: ignore[method-assign]
sys.path.insert(0, os.getcwd())  # noqa: PTH109 - where the scene's tasks.py lies
import tasks  # noqa: E402 - the scene's

Program(namespace=Collection.from_module(tasks)).run(["invoke", *sys.argv[2:]])
