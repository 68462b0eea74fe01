# Everything works from a fresh clone: each target sets up the virtual environment it needs.
PYTHON ?= python3
WORKERS ?= 16
ARGS ?=
VENV := .venv
CHECK_VENV := .venv-check

.PHONY: serve test check format docs bench clean

serve: $(VENV)/.ready ## the main job, on the bundled checkpoint
	$(VENV)/bin/kimi-serve --tokenizer-worker-num $(WORKERS) --force-cpu-image-preprocessing $(ARGS)

test: $(VENV)/.ready ## the core suite: no torch
	$(VENV)/bin/python -m pytest -q tests $(ARGS)

check: $(CHECK_VENV)/.ready ## format, lint, types, the full suite with the gpu extra installed
	$(CHECK_VENV)/bin/ruff format --check .
	$(CHECK_VENV)/bin/ruff check .
	$(CHECK_VENV)/bin/mypy
	$(CHECK_VENV)/bin/pyright --pythonpath $(CHECK_VENV)/bin/python
	$(CHECK_VENV)/bin/python -m pytest -q tests $(ARGS)

format: $(CHECK_VENV)/.ready
	$(CHECK_VENV)/bin/ruff format .
	$(CHECK_VENV)/bin/ruff check --fix .

docs: $(VENV)/.ready ## pages that are made from the code
	$(VENV)/bin/python scripts/settings_page.py > docs/settings.md
	$(VENV)/bin/python scripts/deployments_page.py > docs/deployments.md
	$(VENV)/bin/kimi-serve schema > docs/kimi-serve.schema.json

bench: $(CHECK_VENV)/.ready ## memory and start of the fleet, beside the spawn-with-transformers way
	$(CHECK_VENV)/bin/python benchmarks/fleet.py $(ARGS)

clean:
	rm -rf $(VENV) $(CHECK_VENV) build dist *.egg-info

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q --upgrade "pip>=25.1"
	$(VENV)/bin/python -m pip install -q -e . --group test
	touch $@

$(CHECK_VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(CHECK_VENV)
	$(CHECK_VENV)/bin/python -m pip install -q --upgrade "pip>=25.1"
	$(CHECK_VENV)/bin/python -m pip install -q -e ".[gpu]" --group check
	touch $@
