# Everything works from a fresh clone: each target sets up the virtual environment it needs.
PYTHON ?= python3
WORKERS ?= 16
ARGS ?=
TEST_PROCESSES ?= 3
VENV := .venv
CHECK_VENV := .venv-check

.PHONY: serve test check format docs bench faults soak sanitize fuzz lock audit clean

serve: $(VENV)/.ready ## the main job, on the bundled checkpoint
	$(VENV)/bin/kimi-serve --tokenizer-worker-num $(WORKERS) --force-cpu-image-preprocessing $(ARGS)

test: $(VENV)/.ready ## the core suite: no torch
	$(VENV)/bin/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile tests $(ARGS)

check: $(CHECK_VENV)/.ready ## format, lint, types, the full suite with the gpu extra installed
	$(CHECK_VENV)/bin/ruff format --check .
	$(CHECK_VENV)/bin/ruff check .
	$(CHECK_VENV)/bin/mypy
	$(CHECK_VENV)/bin/pyright --pythonpath $(CHECK_VENV)/bin/python
	$(CHECK_VENV)/bin/python -m pytest -q -n $(TEST_PROCESSES) --dist loadfile tests $(ARGS)

format: $(CHECK_VENV)/.ready
	$(CHECK_VENV)/bin/ruff format .
	$(CHECK_VENV)/bin/ruff check --fix .

docs: $(VENV)/.ready ## pages that are made from the code
	$(VENV)/bin/python scripts/settings_page.py > docs/settings.md
	$(VENV)/bin/python scripts/deployments_page.py > docs/deployments.md
	$(VENV)/bin/kimi-serve schema > docs/kimi-serve.schema.json

# Other peers by option, each an interpreter that has it: --vllm-python P, --sglang-python P.
bench: $(CHECK_VENV)/.ready ## ratios against peers and bars; ARGS: --quick, --check, --save
	$(CHECK_VENV)/bin/python benchmarks/run.py \
	  --transformers-python $(CHECK_VENV)/bin/python $(ARGS)

FAULTS_SECONDS ?= 180
SOAK_REQUESTS ?= 20000

faults: $(VENV)/.ready ## random signals to a loaded server; prints what clients lost, fails if anything
	$(VENV)/bin/python scripts/faults.py --seconds $(FAULTS_SECONDS) $(ARGS)

soak: $(VENV)/.ready ## many real images; prints memory by thousand, fails if it grows
	$(VENV)/bin/python scripts/soak.py --requests $(SOAK_REQUESTS) $(ARGS)

sanitize: $(VENV)/.ready ## the native kernel under address and undefined-behaviour sanitizers
	scripts/sanitize.sh $(VENV)/bin/python $(ARGS)

FUZZ_VENV := .venv-fuzz
SECONDS ?= 300
CORPUS := tests/fuzz/corpus

fuzz: $(FUZZ_VENV)/.ready ## coverage-guided, SECONDS a target; what breaks is left in build/fuzz
	mkdir -p $(addprefix build/fuzz/,file reference chat)
	for target in file reference chat; do \
	  $(FUZZ_VENV)/bin/python tests/fuzz/request_fuzz.py $$target build/fuzz/$$target \
	    $(CORPUS)/$$target -max_total_time=$(SECONDS) -timeout=10 -rss_limit_mb=3000 \
	    -artifact_prefix=build/fuzz/found-$$target- $(ARGS) || exit 1; \
	done

LOCK_VENV := .venv-lock

lock: $(LOCK_VENV)/.ready ## pin the newest versions that fit; says names and versions, no place
	$(LOCK_VENV)/bin/uv pip compile pyproject.toml --group check --group bench \
	  --universal --python-version 3.11 --upgrade --no-emit-index-url --no-annotate --no-header \
	  --quiet --output-file requirements.lock $(ARGS)

audit: $(LOCK_VENV)/.ready ## known faults of what is pinned; asks the advisory service of PyPI
	$(LOCK_VENV)/bin/pip-audit --requirement requirements.lock --no-deps --disable-pip $(ARGS)

clean:
	rm -rf $(VENV) $(CHECK_VENV) $(FUZZ_VENV) $(LOCK_VENV) build dist *.egg-info preprocess/native/*.so

KERNEL := setup.py $(wildcard preprocess/native/*.[ch])

$(VENV)/.ready: pyproject.toml requirements.lock $(KERNEL)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install -q --upgrade "pip>=25.1"
	$(VENV)/bin/python -m pip install -q -c requirements.lock -e . --group test
	touch $@

$(CHECK_VENV)/.ready: pyproject.toml requirements.lock $(KERNEL)
	$(PYTHON) -m venv $(CHECK_VENV)
	$(CHECK_VENV)/bin/python -m pip install -q --upgrade "pip>=25.1"
	$(CHECK_VENV)/bin/python -m pip install -q -c requirements.lock -e ".[gpu]" --group check
	touch $@

$(FUZZ_VENV)/.ready: pyproject.toml requirements.lock $(KERNEL)
	$(PYTHON) -m venv $(FUZZ_VENV)
	$(FUZZ_VENV)/bin/python -m pip install -q --upgrade "pip>=25.1"
	$(FUZZ_VENV)/bin/python -m pip install -q -c requirements.lock -e . --group test --group fuzz
	touch $@

$(LOCK_VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install -q --upgrade "pip>=25.1"
	$(LOCK_VENV)/bin/python -m pip install -q --group lock
	touch $@
