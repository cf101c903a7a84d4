# make train   environment, installation, and the main job: 16 PPO agents on CartPole-v1
# make test    environment, installation, and the tests
# make test-slow  environment, installation, and the tests that take long, hours;
#              PART=3/20 runs the third of twenty parts, each a sample of all
# make test-newest  the tests on the newest Python of this machine, on the path or pyenv's,
#              with the newest versions of everything, in an environment of their own.
#              NEWEST=3.14 takes that Python, which uv fetches; OVERRIDE='jax>=0.12'
#              installs that whatever other packages ask for
# make bench   environment, installation, and which share of this machine training uses
# make studies  environment, installation, and every study, hours; it goes on.
#              ONLY='jym tabular' runs some, LONG=1 also what takes many hours
# make docs    environment, installation, and the site of the documentation in site/
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
NEWEST_VENV := .venv-newest
NEWEST ?= $(shell PATH="$$PATH:$$(ls -d ~/.pyenv/versions/*/bin 2>/dev/null | tr '\n' ':')" \
	$(BIN)/uv python list --only-installed 'cpython>=3.11' 2>/dev/null \
	| awk '$$1 !~ /[0-9](a|b|rc)[0-9]/ {print $$2; exit}')
STUDIES = $(if $(ONLY),--only $(ONLY)) $(if $(LONG),--long)

.PHONY: train test test-slow test-newest check bench studies studies-quick docs format clean

train: $(VENV)/installed
	$(BIN)/purerl train --preset ppo-cartpole --seeds 16

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m slow -n 1 $(if $(PART),--part $(PART))

test-newest: $(BIN)/uv
	$(BIN)/uv venv -q --seed --clear -p $(NEWEST) $(NEWEST_VENV)
	echo "$(OVERRIDE)" > $(NEWEST_VENV)/override.txt
	$(BIN)/uv pip install -q -p $(NEWEST_VENV) --override $(NEWEST_VENV)/override.txt -e '.[dev]'
	$(NEWEST_VENV)/bin/python -VV
	$(BIN)/uv pip list -p $(NEWEST_VENV)
	$(NEWEST_VENV)/bin/python -m pytest $(if $(PART),--part $(PART))

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

studies: $(VENV)/installed-studies
	$(BIN)/python experiments/studies/studies.py $(STUDIES)

studies-quick: $(VENV)/installed-studies
	$(BIN)/python experiments/studies/studies.py --quick $(STUDIES)

bench: $(VENV)/installed-dev
	$(BIN)/python experiments/benchmarks/share.py

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(NEWEST_VENV) .pytest_cache .ruff_cache build dist site *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(BIN)/uv: | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -q uv

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/installed-studies: $(VENV)/installed-dev
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev,studies]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[docs]'
	touch $@
