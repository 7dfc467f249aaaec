# Everything runs in .venv, which these targets make by themselves. Needs Python 3.10 or later and make; no root.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# The newest releases have no wheels for Python 3.10; the tests on them are skipped there.
NEWEST := $(shell $(PYTHON) -c 'import sys; print("0.5.23" if sys.version_info >= (3, 11) else "")')
LAB_RELEASES ?= 0.5.9 0.5.12 0.5.16 $(NEWEST)

.PHONY: help demo test test-launchers lint format matrix faults bench-deploy bench-probe bench-sweep bench-report bench-automation bench-hosts bench-pull bench-waits clean
help:            ## show this
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  +##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 16

$(VENV)/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "eaglelab needs Python 3.10 or later: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || $(PYTHON) -m virtualenv -q $(VENV) || { rm -rf $(VENV); echo "this Python cannot make virtual environments: install python3-venv, or: pip install --user virtualenv" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lab]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lab,dev]'
	@touch $@

demo: $(VENV)/.run                 ## the whole road on the embedded lab: deploy, bench, rollback
	@$(BIN)/invoke demo

test: $(VENV)/.dev                 ## all tests; those on OpenSSH's sshd and in Chromium where there is one
	@sh tests/ensure-sshd
	@sh tests/ensure-slurm
	@sh tests/ensure-podman
	@sh tests/ensure-chromium
	@$(BIN)/python -m eaglelab.lab.fetch $(LAB_RELEASES)
	@$(BIN)/python tests/matrix/matrix.py --families --fetch
	$(BIN)/python -m pytest $(TESTS)

test-launchers: $(VENV)/.dev       ## the tests of the launchers: Slurm, containers, systemd, where they can run
	@sh tests/ensure-slurm
	@sh tests/ensure-podman
	EAGLELAB_ALL_LAUNCHERS=1 $(BIN)/python -m pytest tests/launchers $(TESTS)

lint: $(VENV)/.dev                 ## lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dev               ## put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

matrix: $(VENV)/.run               ## the patches on the workers of every SGLang release
	@$(BIN)/python tests/matrix/matrix.py

faults: $(VENV)/.dev               ## break a host in some hundred ways, one at a time; it can always be put back
	@sh tests/ensure-sshd
	@$(BIN)/python tests/faults $(FAULTS)

bench-deploy: $(VENV)/.run         ## how long deploy-profiling takes on the lab with a load of 3 s (goal: 8 s)
	@$(BIN)/python tests/benchmarks/deploy.py

bench-probe: $(VENV)/.run          ## what the probe costs a decode cycle (goal: 100 ns off, 12 us on)
	@$(BIN)/python tests/benchmarks/probe.py
	@$(BIN)/python tests/benchmarks/probe_cold.py

bench-sweep: $(VENV)/.run          ## whether sweep ranks as the lab's cost model does (20 runs), and what one load costs
	@$(BIN)/python -m eaglelab.lab.fetch 0.5.12
	@$(BIN)/python tests/benchmarks/sweep.py $(SWEEP)

bench-automation: $(VENV)/.dev     ## one job on 1 and 16 loopback hosts, in turns with Ansible and pyinfra
	@sh tests/ensure-sshd
	@$(BIN)/python tests/benchmarks/automation.py $(AUTOMATION)

bench-hosts: $(VENV)/.dev          ## what a host costs the controller, on 1, 16 and 64 loopback hosts at once
	@sh tests/ensure-sshd
	@$(BIN)/python tests/benchmarks/hosts.py $(HOSTS)

bench-pull: $(VENV)/.dev           ## a log of 200 MB brought home, in turns with sftp and rsync
	@sh tests/ensure-sshd
	@$(BIN)/python tests/benchmarks/pulls.py $(PULL)

bench-waits: $(VENV)/.run          ## how soon a server is called ready, or dead (goals: 0.5 s, 2 s)
	@$(BIN)/python tests/benchmarks/waits.py

bench-report: $(VENV)/.run         ## how fast report --log reads a server log of 1 GB, beside grep (goal: 300 MB/s)
	@$(BIN)/python tests/benchmarks/report.py $(REPORT)

clean:                             ## remove what these targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
