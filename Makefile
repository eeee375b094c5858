# Everything below needs python3 (3.10 or newer), a JDK (17 or 21) and make.
VENV ?= .venv
PYTHON ?= python3
SEEDS ?= 100
SECONDS ?= 120
JAVA ?= $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

VENV_PYTHON := $(VENV)/bin/python
SBT_VERSION := $(shell sed -n 's/^sbt.version=//p' project/build.properties)
SBT_JAR := .sbt-launch/sbt-launch-$(SBT_VERSION).jar
# `uv` installs several times as fast as pip; where it has no wheel or fails, pip does the same.
UV = $(VENV)/bin/uv
INSTALL = { test -x $(UV) && $(UV) pip install --quiet --python $(VENV_PYTHON) \
    --constraint constraints.txt --build-constraint constraints.txt -e '.[$(1)]'; } \
  || PIP_CONSTRAINT=constraints.txt $(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -e '.[$(1)]'

# sbt formats and tests. The build asks $PYTHON where Spark's jars are.
SBT = PYTHON=$(abspath $(VENV_PYTHON)) $(JAVA) -Xmx1g -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Dsbt.server.autostart=false -Dsbt.supershell=false -jar $(SBT_JAR)

# pyspark carries Ivy, which fetches jars: no other tool has to be installed.
IVY = $(JAVA) -jar $$($(VENV_PYTHON) -c "import importlib.util as u, pathlib as p; print(*(p.Path(u.find_spec('pyspark').origin).parent / 'jars').glob('ivy-*.jar'))") -warn

SHIM_SOURCES := jvm_shim/build.py jvm_shim/scalac.options \
  $(shell find jvm_shim/src/main -type f) python/slackwater/repr/slackwater-error-conditions.json

.DEFAULT_GOAL := help
.PHONY: help setup tools constraints jar wheel docs lint pythonlint scalatest hadoop kafka iceberg registry browser debezium test nightly demo bench arrangements property chaos simulation inputs revision fuzz soak clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .build/python .build/jar ## Make the environment (.venv) and the shim's jar, for use

tools: setup .build/tools ## Add what tests, linters and benchmarks need

constraints: .build/python ## Pin the newest versions that fit pyproject.toml, in constraints.txt
	printf 'setuptools\nuv\n' | $(UV) pip compile --quiet --upgrade --universal --python-version 3.10 --all-extras \
	  --no-header --no-annotate --output-file constraints.txt pyproject.toml -

jar: .build/jar ## Build the shim's jar into python/slackwater/jars

wheel: setup ## Build the wheel, which carries the jar, into dist/
	$(VENV_PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .

docs: tools ## Build the documentation as a site, into .build/site
	NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -m mkdocs build --strict --quiet

lint: pythonlint $(SBT_JAR) ## Check style, types, import arrows and Scala format
	$(SBT) scalafmtCheckAll

pythonlint: .build/tools
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

scalatest: tools $(SBT_JAR) ## Check Scala format and run the Scala tests; SUITE=*MemorySpec: one of them
	$(SBT) scalafmtCheckAll $(if $(SUITE),"testOnly $(SUITE)",test)

hadoop: .hadoop-aws/fetched ## Fetch what Spark needs for S3, which the tests use

kafka: .kafka/fetched ## Fetch the Kafka broker that the tests use

iceberg: .iceberg/fetched ## Fetch Iceberg's reader and catalog server, which the tests use

debezium: .debezium/fetched .kafka/fetched ## Record messages of Debezium over a real MariaDB anew, and test with them
	$(VENV_PYTHON) -m tests.support.kafka.debezium $(<D) tests/e2e/mysql_messages.jsonl
	$(VENV_PYTHON) -m pytest -q -n 0 tests/e2e/test_mysql_topics.py

registry: .registry/fetched ## Fetch the schema registry that the tests use

browser: .build/browser ## Install Chromium, in which the tests look at the console

# What comes before the tests runs two at a time. A test often waits: three keep two cores busy.
before_tests = @$(MAKE) --no-print-directory --jobs 2 --output-sync=target tools scalatest pythonlint .build/classes.jsa hadoop kafka iceberg registry browser .spark-inputs/fetched
run_tests = $(VENV_PYTHON) -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

test: ## Run everything that CI checks
	$(before_tests)
	HISTORIES=half $(run_tests) -m 'not nightly'

nightly: ## Run all tests, also those that take long or need another machine, store or Java
	$(before_tests)
	$(run_tests)

demo: setup ## Run the demo on real data; fails when one of its own checks does
	$(VENV)/bin/slackwater demo

bench: tools ## Run the benchmarks
	$(VENV_PYTHON) -m tests.bench

arrangements: tools $(SBT_JAR) ## Measure the index in memory; ROWS=24000000: with so many rows, FILES=/tmp/x: in files
	$(SBT) "Test/runMain org.apache.spark.sql.slackwater.arrangements.Bench $(or $(ROWS),6000000) $(FILES)"

property: tools ## Run the property tests alone; EXAMPLES=100000: that many histories, on all cores
	$(VENV_PYTHON) -m pytest tests/property $(if $(EXAMPLES),--timeout 0 --numprocesses auto --dist worksteal)

chaos: tools ## Run the crash tests alone, and the one with two networks
	SLACKWATER_NETWORKS=1 SLACKWATER_CHAOS_SECONDS=$${SLACKWATER_CHAOS_SECONDS:-60} $(VENV_PYTHON) -m pytest tests/chaos \
	  tests/clients/test_join_takeover.py::test_a_leader_in_another_network_is_not_fenced

simulation: tools ## Simulate faults and restarts: SEED=1234 or KILL=17 repeats a run, SEEDS=500 runs many
	$(VENV_PYTHON) -m tests.simulation $(or $(SEED),$(if $(KILL),--kill $(KILL),--kill-step 1 --count $(SEEDS)))

inputs: tools .spark-inputs/fetched ## Make views of what Spark tests itself with; FILES='cte.sql group*': of some files, WRITE=1: count anew
	$(VENV_PYTHON) -m tests.inputs $(FILES) $(if $(WRITE),--write)

revision: tools ## Write the metastore's next revision: make revision MESSAGE='what has changed'
	$(VENV_PYTHON) -m tests.support.persist.new_revision "$(MESSAGE)"

fuzz: tools ## Compare random views with DuckDB: SECONDS=3600 for so long, SEED=1234 repeats a case
	$(if $(SEED),,$(VENV_PYTHON) -m pytest tests/fuzz)
	$(VENV_PYTHON) -m tests.fuzz $(SEED) --seconds $(SECONDS)

soak: tools ## Make very many ticks, and say what memory they leave taken: TICKS=100000
	$(VENV_PYTHON) -m tests.soak --ticks $(or $(TICKS),100000)

clean: ## Remove what the build made
	rm -rf .build .sbt-launch .hadoop-aws .kafka .iceberg .registry .debezium .spark-inputs target project/target project/project dist build .venv
	rm -f python/slackwater/jars/*.jar

# Half of what a short application takes is loading Spark's classes: the tests find them loaded.
.build/classes.jsa: .build/tools | .build/jar
	$(VENV_PYTHON) -m tests.support.applications.class_archive $(abspath $@)

.build/python: pyproject.toml constraints.txt | $(if $(filter .venv,$(VENV)),.venv/bin/python)
	$(if $(filter .venv,$(VENV)),$(call INSTALL,all))
	@mkdir -p .build && touch $@

.build/tools: .build/python
	$(if $(filter .venv,$(VENV)),$(call INSTALL,dev))
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Slackwater needs Python 3.10 or newer; name one with make PYTHON=...")'
	$(PYTHON) -m venv .venv
	-$@ -m pip install --quiet --disable-pip-version-check --only-binary :all: --constraint constraints.txt uv

$(SBT_JAR): | .build/python
	@mkdir -p $(@D)
	$(IVY) -types jar -dependency org.scala-sbt sbt-launch $(SBT_VERSION) -retrieve "$(@D)/[artifact]-[revision].[ext]"
	@test -f $@

.hadoop-aws/fetched: tests/e2e/hadoop_aws.xml | .build/python
	rm -rf $(@D) && mkdir $(@D)
	$(IVY) -types jar -ivy $< -retrieve "$(@D)/[artifact]-[revision].[ext]"
	touch $@

.kafka/fetched: python/slackwater/demo/kafka.xml | .build/python
	rm -rf $(@D) && mkdir $(@D)
	$(IVY) -types jar bundle -ivy $< -retrieve "$(@D)/[artifact]-[revision].[ext]"
	touch $@

.iceberg/fetched: tests/e2e/iceberg.xml | .build/python
	rm -rf $(@D) && mkdir $(@D)
	$(IVY) -types jar test-jar bundle -ivy $< -retrieve "$(@D)/[artifact]-[revision]-[type].[ext]"
	touch $@

.debezium/fetched: tests/e2e/debezium.xml | .build/python
	rm -rf $(@D) && mkdir $(@D)
	$(IVY) -types jar bundle -ivy $< -retrieve "$(@D)/[artifact]-[revision].[ext]"
	touch $@

.registry/fetched: tests/e2e/registry.xml | .build/python
	rm -rf $(@D) && mkdir $(@D)
	$(IVY) -types tar.gz -ivy $< -retrieve "$(@D)/[artifact]-[revision].[ext]"
	tar -xzf $(@D)/*.tar.gz -C $(@D) && rm $(@D)/*.tar.gz
	touch $@

# Debian's own, with a font: playwright would fetch a browser from a host of its own.
.build/browser:
	@test -x /usr/bin/chromium || { apt-get update -q && apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core; } \
	  || { echo "make browser: install chromium and fonts-dejavu-core, so that there is /usr/bin/chromium (as root: apt-get install)"; exit 1; }
	@test -x /usr/bin/chromium || { echo "make browser: /usr/bin/chromium is not there"; exit 1; }
	@mkdir -p .build && touch $@

.spark-inputs/fetched: tests/inputs/spark_inputs.xml | .build/python
	rm -rf $(@D) && mkdir $(@D)
	$(IVY) -types test-jar -ivy $< -retrieve "$(@D)/[artifact]-tests.[ext]"
	touch $@

.build/jar: $(SHIM_SOURCES) .build/python
	$(VENV_PYTHON) jvm_shim/build.py $(JAVA)
	@mkdir -p .build && touch $@
