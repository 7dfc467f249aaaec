"""Commands that read no log do not wait for the libraries that do."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numpy", "ahocorasick_rs", "zstandard", "matplotlib")
LIGHT = ("eaglelab.commands.outcome", "eaglelab.context", "eaglelab.profile.logfile", "eaglelab.actions")


def test_commands_start_without_the_libraries_that_only_logs_and_charts_need():
    code = f"import sys, {', '.join(LIGHT)}; print(sorted(set({HEAVY}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
