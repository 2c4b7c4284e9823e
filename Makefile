# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: bench scaling demo test lint types check-tests published torture package picture gallery clean

demo: $(READY)
	$(RUN) -m unweave demo

test: lint types check-tests published

# The stamp is older than these files after a pull that changed them, so the environment follows.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("unweave needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -c 'from importlinter.cli import lint_imports; raise SystemExit(lint_imports())'

types: $(READY)
	$(RUN) -m mypy

# Several processes with one thread each: torch's threads would get in each other's way.
check-tests: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -m pytest --numprocesses auto --dist loadfile --ignore tests/published

# What is committed of studies: the numbers, where they come from, the pages built from them, the tables in the docs.
published: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -m pytest --numprocesses auto --dist worksteal tests/published

# How many times faster than the released loop's way of working, in minutes; with a GPU, also how well it is used.
# `make bench OUT=results/speed` writes what was measured.
bench: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -m bench.run $(if $(OUT),--out $(OUT))

scaling: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -m bench.scaling --out $(or $(OUT),results/speed)
	$(RUN) -m bench.plot $(or $(OUT),results/speed) docs/images

# Every method, killed at random places and resumed: what `make test` samples, in some minutes.
torture: $(READY)
	$(RUN) -m tests.helpers.torture --out results/torture

# Wheel and source distribution in dist/.
package: $(READY)
	rm -rf dist
	$(RUN) -m build

# The README's picture is made by the demo.
picture: demo
	cp unweave-demo/forget-losses.png unweave-demo/forget-losses.svg docs/images/

# The page of every published study, in docs/gallery, from the numbers in results; some minutes.
gallery: $(READY)
	OMP_NUM_THREADS=1 $(RUN) tools/gallery.py

clean:
	rm -rf $(VENV) dist unweave-demo study docs/gallery/*/
