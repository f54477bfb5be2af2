# What people type; `make` alone lists it. The work itself is done by Python scripts, which run the same way by hand.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLUSTER := tests/cluster/cluster.py
CHART_CRD := charts/vlm-operator/files/vlmservices.vlmserve.dev.yaml

# `make demo KUBECONFIG=...` means a cluster of yours. An exported KUBECONFIG does not count: the demo would install into
# whatever cluster the shell happens to point at.
ifneq ($(origin KUBECONFIG),command line)
KUBECONFIG :=
endif
IMAGE ?=

.PHONY: help
help: ## this list
	@printf 'usage: make TARGET\n\n'
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '  %-14s %s\n' "$$name" "$$text"; done
	@printf '\nWhat a fresh machine needs first: README.md, Try it without GPUs.\n'

.PHONY: venv
venv: $(STAMP) ## .venv with everything for development; quick when nothing changed

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: $(PYTHON) must be Python 3.11 or newer with venv; on Debian 12: apt-get install -y python3 python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@echo "installing the project and its development tools into $(VENV)"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[bench,runtime]' --group dev
	@touch $@

.PHONY: check
check: venv ## linters, types, import rules and unit tests; no cluster, no root, about two minutes
	@$(MAKE) lint
	$(BIN)/python -m pytest tests/unit -q -n 2

.PHONY: lint
lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.PHONY: test
test: check prepare ## everything: `check`, then all suites against a real API server, engine and cluster (root)
	$(BIN)/python -m pytest tests --ignore tests/unit

.PHONY: test-long
test-long: venv ## what takes too long for every change: more random services against the real engine of four releases
	VLM_TEST_LONG=1 $(BIN)/python -m pytest tests/conformance/test_resolution.py

# What the suites need beside Python: the cluster's programs, images and the engine. Nothing is made twice.
.PHONY: prepare
prepare: venv packages
	$(PYTHON) $(CLUSTER) build --tests
	$(PYTHON) $(CLUSTER) images
	$(PYTHON) $(CLUSTER) engine

.PHONY: packages
packages:
	@$(PYTHON) $(CLUSTER) check --install

.PHONY: demo
demo: venv ## a cluster on this machine, a model that answers a question about an image, a plan for H100s (root)
	@$(BIN)/python -m demo $(if $(KUBECONFIG),--kubeconfig '$(KUBECONFIG)') $(if $(IMAGE),--image '$(IMAGE)')

.PHONY: demo-monitoring
demo-monitoring: venv ## the demo with a Prometheus that scrapes it, and what each dashboard shows (root)
	@$(BIN)/python -m demo --monitoring

.PHONY: cluster-up
cluster-up: venv packages ## the one-node cluster alone; kubeconfig: .cluster/kubeconfig
	$(PYTHON) $(CLUSTER) build
	$(PYTHON) $(CLUSTER) images
	$(PYTHON) $(CLUSTER) up

.PHONY: cluster-down
cluster-down: ## stop that cluster; what was built stays
	$(PYTHON) $(CLUSTER) down

.PHONY: crds
crds: venv ## generate the CRD from crds/vlm_api and copy it into the chart
	$(BIN)/python crds/generate.py
	cp crds/vlmservices.vlmserve.dev.yaml $(CHART_CRD)

.PHONY: chart
chart: venv ## generate the chart's dashboards and README
	$(BIN)/python charts/generate.py

.PHONY: docs
docs: venv ## generate docs/hardware.md, docs/models.md and the plan in README.md
	$(BIN)/python docs/generate.py

.PHONY: clean
clean: ## stop the cluster and remove everything that was built, .venv included
	@test ! -e .cluster || $(PYTHON) $(CLUSTER) down
	rm -rf .cluster $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
