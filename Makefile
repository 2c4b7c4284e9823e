# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check
CUDA := cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime \
  nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 \
  nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx triton

.PHONY: audit bench scaling demo test lint lock types check-tests published torture fuzz package picture gallery docs check-docs site \
  notebooks reference clean

demo: $(READY)
	$(RUN) -m unweave demo

test: lint types check-tests published

# The stamp is older than these files after a pull that changed them, so the environment follows. Every file that is
# installed has a hash in requirements.txt, except torch and what it needs for CUDA: which build of torch is the right one
# depends on the machine. Its version is pinned.
$(READY): pyproject.toml constraints.txt requirements.txt
	$(PYTHON) -c 'import sys; sys.exit("unweave needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --no-deps --require-hashes --requirement requirements.txt
	$(INSTALL) --constraint constraints.txt torch
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $(READY)

# After a change of dependencies: the pinned versions with everything that they need, for all systems. It needs uv.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --extra dev \
	  --constraint constraints.txt --custom-compile-command 'make lock' --output-file requirements.txt \
	  $(addprefix --no-emit-package ,pip torch $(CUDA)) pyproject.toml
	$(RUN) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], \
	  sep="\n")' | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --constraint requirements.txt --constraint constraints.txt --custom-compile-command 'make lock' \
	  --output-file requirements-docs.txt -

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

# Every method, a study, a tuning and a request, killed at random places and resumed: what `make test` samples.
# `make torture KILLS=1000 JOBS=16` says how many kills, by how many processes; the result is written to results/torture.
torture: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -m tests.helpers.torture $(if $(KILLS),--kills $(KILLS)) $(if $(JOBS),--jobs $(JOBS)) \
	  --out $(or $(OUT),results/torture)

# Odd files, calls and command lines, an hour of one core: what `make test` samples. `make fuzz FUZZ='--parsers 5000'`
# tries other counts (--parsers, --calls, --lines, --processes), `--jobs 16` shares them, and `--minutes 20` stops then.
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -m tests.helpers.fuzz $(FUZZ) --out $(or $(OUT),results/fuzz)

# Known vulnerabilities, secrets that were committed by mistake, and a bill of materials in dist/.
audit: $(READY)
	.ci/audit

# Wheel and source distribution in dist/, the same files on every machine: their times are those of the last commit.
package: $(READY)
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(RUN) -m build --no-isolation

# The README's picture is of its example; that of the losses in docs/methods.md is made by the demo.
picture: demo
	cp unweave-demo/forget-losses.png docs/images/
	OMP_NUM_THREADS=1 $(RUN) tools/before_after.py

# The page of every published study, in docs/gallery, from the numbers in results; some minutes.
gallery: $(READY)
	OMP_NUM_THREADS=1 $(RUN) tools/gallery.py

# The documentation site in site/, with every tutorial run again: some minutes. `make site` takes their committed outputs.
docs: reference notebooks site

# Tests of the docs that take over a minute: every tutorial is executed, and left as it is.
check-docs: $(READY)
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m slow tests/docs

site: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

# Executes the tutorials in docs/tutorials, one after the other, and writes their outputs into them.
notebooks: $(DOCS)
	OMP_NUM_THREADS=2 $(RUN) tools/notebooks.py

# Pages of docs/reference that are made from the code. A test compares them with it.
reference: $(READY)
	$(RUN) tools/reference.py

# What only the site needs is installed when it is built for the first time; `make test` does not wait for it.
$(DOCS): $(READY) requirements-docs.txt
	$(INSTALL) --no-deps --require-hashes --requirement requirements-docs.txt
	touch $(DOCS)

clean:
	rm -rf $(VENV) dist site unweave-demo study docs/gallery/*/
