# make train   environment, installation, and the main job: 16 PPO agents on CartPole-v1
# make test    environment, installation, and the tests
# make test-slow  environment, installation, and the tests that take long, hours;
#              PART=3/20 runs the third of twenty parts, each a sample of all
# make bench   environment, installation, and which share of this machine training uses
# make studies  environment, installation, and every study, hours; it goes on.
#              ONLY='jym tabular' runs some, LONG=1 also what takes many hours
# make docs    environment, installation, and the site of the documentation in site/
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STUDIES = $(if $(ONLY),--only $(ONLY)) $(if $(LONG),--long)

.PHONY: train test test-slow check bench studies studies-quick docs format clean

train: $(VENV)/installed
	$(BIN)/purerl train --preset ppo-cartpole --seeds 16

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m slow -n 1 $(if $(PART),--part $(PART))

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
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist site *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

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
