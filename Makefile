# Every target works on a fresh clone: the virtual environment is made when it is missing or out of date.
# PYTHON=python3.13: another version of Python; in a virtual environment of its own where .venv has a different one.
version = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
ifneq ($(and $(PYTHON),$(wildcard .venv/bin/python)),)
  wanted := $(call version,$(PYTHON))
  ifneq ($(wanted),$(call version,.venv/bin/python))
    VENV ?= .venv-$(wanted)
  endif
endif
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= auto
OUTPUT ?= table
MARKS  ?= not long and not rounds and not interop and not spark and not clients
NOISE_TESTS := $(addprefix tests/,cli client daemon demo e2e pytest_plugin raft/real_processes requirements services)

.DEFAULT_GOAL := help
.PHONY: help setup check fmt test test-long test-random test-rounds nemesis test-noise test-spark test-console demo-console test-lowest test-pythons fuzz sim damage sim-raft bench bench-count bench-growth bench-peers demo interop proto docs kernel dist test-dist release-notes site clean

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(STAMP): pyproject.toml kernel/pyproject.toml kernel/setup.py kernel/streamlog_kernel.c kernel/streamlog_batches.c kernel/streamlog_syncs.c kernel/streamlog_spark_native.c
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "streamlog needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'Installing streamlog and its tools into $(VENV), which takes a few minutes.'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m compileall -q streamlog
	$(BIN)/python tools/build_kernel.py
	@touch $@

setup: $(STAMP)  ## make the virtual environment and install everything in it

check: $(STAMP)  ## lint, types, layering, words, the API unbroken, generated code up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --python-version $(call version,$(BIN)/python)
	$(BIN)/python tools/check_api.py
	$(BIN)/python -m pytest -q tests/test_layering.py tests/test_generated.py tests/test_vocabulary.py

fmt: $(STAMP)    ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(STAMP)   ## all tests but the long ones, in parallel; T=tests/storage K=torn: some of them
	@$(if $(T)$(K),,echo 'Some 15,600 tests: 15 to 40 minutes on two cores. In the first minute they are collected, and nothing is printed.')
	$(BIN)/python -m pytest -q $(if $(T)$(K),,-n $(JOBS)) -m '$(MARKS)' $(T) $(if $(K),-k '$(K)')

test-long: $(STAMP)  ## more seeds of the simulations
	$(BIN)/python -m pytest -q -n $(JOBS) -m 'long and not rounds' --timeout=1800

test-random: $(STAMP)  ## the property tests with new random examples, instead of the same ones in every run
	HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest -q -n $(JOBS) -m 'hypothesis and not rounds' --timeout=1800 $(T)

test-rounds: $(STAMP)  ## tens of rounds of kill -9 and power cuts with real processes; half an hour on an otherwise idle machine
	$(BIN)/python -m pytest -q -m rounds

nemesis: $(STAMP)  ## real processes under faults of network, disk, clock and power: MINUTES=10 SEED=7 NODES=4 LONGEST=25 KINDS= (root)
	$(BIN)/python -m tests.nemesis --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(NODES),--nodes $(NODES)) $(if $(LONGEST),--longest $(LONGEST)) $(if $(SLACK),--slack $(SLACK)) $(if $(KINDS),--kinds '$(KINDS)')

.PHONY: clients
clients: $(STAMP)  ## examples and conformance suite in Python, Go, Java, Node, Rust, under kills too, and grpc-web; DRIVER='./mine': a client of your own
	STREAMLOG_DRIVER='$(DRIVER)' $(BIN)/python -m pytest -q -m clients tests/clients $(if $(K),-k '$(K)')

test-noise: $(STAMP)  ## tests of real nodes with random delays of disk and network; NOISE=2: twice as long
	STREAMLOG_NOISE=$(or $(NOISE),1) PYTHONPATH=tests/noise $(BIN)/python -m pytest -q -n 6 -m 'not long and not rounds' \
	  $(NOISE_TESTS) --deselect tests/pytest_plugin/test_cluster.py::test_the_plugin_loads_nothing_until_it_is_asked

test-spark: $(STAMP)  ## the Spark tests, with pyspark (a download of 450 MB the first time) and a Java
	$(BIN)/python -c 'import pyspark, pyarrow' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark]'
	$(BIN)/python -m pytest -q -m 'not rounds' tests/spark

.PHONY: console-picture
console-picture: $(STAMP)  ## the README's picture of the console, from the running page; needs Chromium
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,browser]'
	$(BIN)/python tools/console_picture.py

test-lowest: $(STAMP)  ## a cluster of three nodes with the lowest version of each dependency that pyproject.toml allows
	$(BIN)/python tools/lowest.py --run

test-pythons: $(STAMP)  ## the wheel in a fresh environment of each supported version of Python, in its oldest release that is installed
	$(BIN)/python tools/pythons.py

test-console: $(STAMP)  ## the web console, with its packages; in a real browser where Chromium is installed
	$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,browser]'
	$(BIN)/python -m pytest -q tests/console

sim: $(STAMP)    ## the cluster in simulation: SEED=7 prints one run, SEEDS=2000 FROM=0 JOBS=2 runs many (LOG=file: in pieces), SHRINK=7 finds why
	@$(BIN)/python -m tests.cluster $(if $(SEED),--seed $(SEED),$(if $(SHRINK),--shrink $(SHRINK),--seeds $(or $(SEEDS),300) --from $(or $(FROM),0) --jobs $(or $(JOBS:auto=2),2) $(if $(LOG),--log $(LOG)))) $(if $(MUTANT),--mutant $(MUTANT))

damage: $(STAMP) ## each file of a node, each region of it, damaged in each way, and the results (MATCH=txnindex, EVERY=19 for some, LOG=file: in pieces)
	@$(BIN)/python -m tests.damage --jobs $(or $(JOBS:auto=2),2) --every $(or $(EVERY),1) $(if $(MATCH),--match "$(MATCH)") $(if $(LOG),--log $(LOG))

sim-raft: $(STAMP)  ## the quorum in simulation: SEEDS=20000 of them, FROM=0 on
	$(BIN)/python -m tests.raft.simulation $(or $(FROM),0) $(or $(SEEDS),2000)

fuzz: $(STAMP)   ## hostile messages to every method of real nodes, MINUTES=5 of them; SEED=7 the same ones again
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED))

interop: $(STAMP)  ## exchange files and records with a real Kafka (Java 17 and Maven; skipped without)
	$(BIN)/python -m pytest -q -m interop tests/interop

proto: $(STAMP)  ## generate the code for proto/ into the packages that use it
	$(BIN)/python tools/generate_proto.py

docs: $(STAMP)  ## write docs/configuration.md from the tables of settings, the reasons in docs/clients.md from the errors
	$(BIN)/python tools/generate_config_docs.py
	$(BIN)/python tools/generate_client_docs.py

dashboards: $(STAMP)  ## write deploy/grafana/*.json
	$(BIN)/python -m tools.generate_dashboards

demo: $(STAMP)   ## three nodes, real log lines, a leader killed with -9, and the results
	@$(BIN)/python -m demo

demo-console: $(STAMP)  ## three nodes, a stream of log lines, and the web console; PORT=8048; until Ctrl-C
	@$(BIN)/python -m demo.console --port $(or $(PORT),8048)

bench: $(STAMP)  ## benchmarks; PART="records ..." for some parts, OUTPUT=json
	@$(BIN)/python -m compileall -q streamlog
	@$(BIN)/python -m bench --output $(OUTPUT) $(PART)

bench-count: $(STAMP)  ## calls of Python functions a record, beside the committed ones; WRITE=1: commit these
	$(BIN)/python -m tests.calls $(if $(WRITE),--write)

bench-growth: $(STAMP)  ## how cost grows with partitions, clients, logs, sizes: PART="log fanout", VALUES=10,100 of one part, PLOT=folder
	@test -z "$(PLOT)" || $(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@$(BIN)/python -m bench.growth --output $(OUTPUT) $(if $(VALUES),--values $(VALUES)) $(if $(PLOT),--plot $(PLOT)) $(PART)

bench-peers: $(STAMP)  ## beside a real Kafka and NATS in one run: PART="sends bulk singles loops publishes iterations pipelines spark", ROUNDS=5, WRITE=1: into docs/performance.md (needs Java 17, Maven, Go)
	@$(BIN)/python -c 'import aiokafka, confluent_kafka, matplotlib, nats' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@$(BIN)/python -m bench.peers --output $(OUTPUT) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(WRITE),--write) $(PART)

kernel: $(STAMP)  ## build the C code of busy nodes again, which make setup installs where it finds a C compiler; its wheel in dist/
	$(BIN)/python tools/build_kernel.py --required

dist: $(STAMP)   ## wheel and sdist in dist/
	rm -rf dist build/lib build/bdist.*
	$(BIN)/python -m build --outdir dist .

test-dist: $(STAMP)  ## the wheel of dist/ in a fresh environment: start a cluster, write to it, read from it
	$(BIN)/python tools/try_wheel.py dist

release-notes: $(STAMP)  ## what is new in this version; VERSION=0.1.0: in another one
	@$(BIN)/python tools/release_notes.py $(VERSION)

.PHONY: stubs
stubs: $(STAMP)  ## packages of generated stubs in dist/stubs, each used against a node: L="python go maven npm crate", without a toolchain skipped
	$(BIN)/python -m tools.stubs $(L)

site: $(STAMP)   ## the documentation site with the API reference in build/site, links checked; SERVE=1: at 127.0.0.1:8000
	$(BIN)/python -c 'import mkdocs, mkdocstrings' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python tools/build_site.py $(if $(SERVE),--serve)

clean:           ## remove the virtual environment and files of tests and benchmarks
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
