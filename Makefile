# Two commands matter: `make run` and `make test`. The rest is for those who build Ottla.
# The system's own build where it is new enough: distributions compile with a profile (PGO), which takes 12 to 20 % less processor than
# the builds that pyenv makes.
PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys, venv; assert sys.version_info >= (3, 11)' 2>/dev/null && echo /usr/bin/)python3
VENV := .venv
PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest -q

# Tests start hundreds of processes: without the files of bytecode each of them would compile pandas, pyspark and the tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run failover test site check lint types rules unit bench compat chaos sim fuzz demo spark-jars dist dist-twice deb lowest clean

# Setting up is one step per need, so that `make run` does not wait for test tools.
$(VENV)/core: pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo "python venv is missing: install it (Debian: apt install python3-venv)"; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check -e .
	@$(PY) -m compileall -q ottla  # else the first start pays for it
	@touch $@

# The packages of an extra or a dependency group alone, and not this project again: others may be using it meanwhile, and it would be built again.
define install_extra
	@$(PY) -c 'import tomllib; t = tomllib.load(open("pyproject.toml", "rb")); print("\n".join((t["dependency-groups"] | t["project"]["optional-dependencies"])["$(@F)"]))' > $@.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile -r $@.txt
	@touch $@
endef

$(VENV)/dev: $(VENV)/core
	$(install_extra)

$(VENV)/pipeline: pyproject.toml | $(VENV)/core
	$(install_extra)

$(VENV)/site: pyproject.toml | $(VENV)/dev
	$(install_extra)

$(VENV)/tables: pyproject.toml | $(VENV)/core
	$(install_extra)
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile 'moto[server]>=5.2' $(DUCKDB)  # an S3 server for their tests, and the extra sql
	@touch $@

# Extensions are of one release of DuckDB; those of others are in no package.
DUCKDB := 'duckdb==1.4.4' 'duckdb-ext-iceberg==1.4.4.*' 'duckdb-ext-avro==1.4.4.*' 'duckdb-ext-httpfs==1.4.4.*'

# Engines of 300 MB that only `make compat ARGS=readers` asks.
$(VENV)/readers: $(VENV)/tables
	$(PY) -m pip install --quiet --disable-pip-version-check --no-compile 'polars>=1.30,<3' 'pandas>=2.2,<3' 'duckdb-ext-delta==1.4.4.*'
	@touch $@

# Three nodes; ARGS="--nodes 1" for one.
run: $(VENV)/core
	$(VENV)/bin/ottla dev $(ARGS)

# Kills the leader of three nodes under load, and counts what was lost.
failover: $(VENV)/dev
	@$(PY) -m tools.failover $(ARGS)

UNIT := $(addprefix tests/,protocol storage server controller broker fuzz)

# Spark takes a minute and a half to install (400 MB): meanwhile the rest is checked and the tests are compiled. Where Spark cannot be
# had, its tests are skipped and say so.
test: $(VENV)/dev
	$(MAKE) --no-print-directory -j 2 optional-parts types rules compiled-tests
	$(PYTEST) -rfEs -n 5 --dist loadfile --no-loadscope-reorder --ignore tests/rules tests  # in the order of tests/conftest.py

SPARK_NEEDS := $(and $(shell command -v java 2>/dev/null),$(shell command -v mvn 2>/dev/null))
.PHONY: optional-parts spark-if-possible
optional-parts:  # one after the other, as two installations at once would meet in one file
	-@$(MAKE) --no-print-directory $(VENV)/tables
	@$(MAKE) --no-print-directory spark-if-possible
spark-if-possible:
	$(if $(SPARK_NEEDS),-$(MAKE) --no-print-directory $(VENV)/pipeline spark-jars,@echo "no Java or no Maven: the tests of the Spark pipeline will be skipped")

# pytest rewrites the assertions of 700 files, which takes 12 s of processor: once here, and not in each of five workers.
.PHONY: compiled-tests
compiled-tests: $(VENV)/dev
	@$(PYTEST) -q --collect-only --ignore tests/rules tests >/dev/null

# In less than a minute on two cores.
check: $(VENV)/dev
	@$(MAKE) --no-print-directory -j 2 types rules unit

lint: types rules

types: $(VENV)/dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

rules: $(VENV)/dev
	$(PYTEST) tests/rules

# What needs neither a socket nor a process; tests that do are left out where they first ask for one. With a fifth of the seeds and
# examples of `make test`.
unit: $(VENV)/dev
	$(PYTEST) -p tests.unit_only -n 2 --dist worksteal $(UNIT)

bench: $(VENV)/dev
	$(PY) -m benchmarks $(ARGS)

compat: export OTTLA_COMPAT := 1
compat: $(VENV)/dev $(if $(filter readers,$(ARGS)),$(VENV)/readers $(VENV)/pipeline)
	$(if $(ARGS),,$(PYTEST) -m compat --ignore tests/rules tests)
	$(PY) -m tests.compat $(ARGS)

ifneq ($(filter --short,$(ARGS)),)
# Some minutes: 60 kills, and all tests of accidents, of which `make test` leaves some out.
chaos: export OTTLA_ACCIDENTS := 1
chaos: $(VENV)/dev
	$(PY) -m tests.chaos --cycles 60
	$(PYTEST) -n 2 --dist loadfile tests/chaos
	$(PYTEST) -n 2 --dist loadfile -m chaos --ignore tests/chaos --ignore tests/rules tests
else
# 2,000 kills and 500 power losses in all, with all seeds and as many records as the clients can write.
chaos: export OTTLA_CHAOS := 1
chaos: $(VENV)/dev
	$(PY) -m tests.chaos $(ARGS)
	$(PY) -m tests.chaos.cluster_cycles
	$(PY) -m tests.chaos.together
	$(PY) -m tests.chaos.failover
	$(PY) -m tests.chaos.power_loss
	$(PY) -m tests.chaos.token_keys
	$(PY) -m tests.chaos.registry_kills
	$(PYTEST) -m chaos --ignore tests/chaos --ignore tests/rules tests
	$(PYTEST) --timeout 900 tests/chaos tests/sim tests/controller/raft/test_simulation.py  # 100 seeds in place of 10 take longer than a test may in `make test`
	$(PY) -m tests.chaos.exactly_once
	$(PY) -m tests.chaos.word_counts  # says so and passes where Java is missing
	$(PY) -m tests.pipeline.chaos  # says so and passes where Spark cannot run
	$(PY) -m tests.pipeline.sink_chaos
endif

# Whole clusters in virtual time, by seed: docs/dev/SIMULATOR.md.
sim: $(VENV)/dev
	$(PY) -m tests.sim $(ARGS)

# Coverage-guided, of all that reads bytes of others; ARGS="--count 5000000" or "--seconds 600": docs/dev/TESTS.md.
fuzz: $(VENV)/dev
	$(PY) -m tests.fuzz $(ARGS)
	$(PY) -m tests.fuzz.costs

# The connector of format("kafka") for the pinned pyspark; kafka-clients of the version it was built with.
SPARK_VERSION ?= 4.0.0
SPARK_JARS := build/spark-jars
spark-jars: $(SPARK_JARS)/spark-sql-kafka-0-10_2.13-$(SPARK_VERSION).jar
$(SPARK_JARS)/spark-sql-kafka-0-10_2.13-$(SPARK_VERSION).jar: pipeline/connector/pom.xml
	@command -v mvn >/dev/null || { echo "Maven is missing: install it (Debian: apt install maven)"; exit 1; }
	rm -rf $(SPARK_JARS).new
	mvn -q -B -f pipeline/connector/pom.xml -Dspark.version=$(SPARK_VERSION) \
	  org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory=$(CURDIR)/$(SPARK_JARS).new -DincludeScope=runtime
	rm -rf $(SPARK_JARS) && mv $(SPARK_JARS).new $(SPARK_JARS)
	@touch $@

# With these, and pip install 'delta-spark==4.0.*', the pipeline's gold tables are Delta tables.
DELTA_VERSION ?= 4.0.0
.PHONY: delta-jars
delta-jars: spark-jars
	for name in delta-spark_2.13 delta-storage; do mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
	  -Dartifact=io.delta:$$name:$(DELTA_VERSION) -DoutputDirectory=$(CURDIR)/$(SPARK_JARS) || exit 1; done

# A cluster, the generator and all stages for a minute; leaves a report with charts.
demo: $(VENV)/pipeline spark-jars
	$(PY) -m ottla.pipeline.demo $(ARGS)

# The pages of docs/ with a search and a generated reference, into build/site: open index.html.
site: $(VENV)/site
	$(PY) -m tools.docs_site

# What a release consists of, into dist/; ARGS="--tag v1.0.0" as the workflow of a tag has it.
dist: $(VENV)/site
	$(PY) -m tools.dist $(ARGS)

dist-twice: $(VENV)/site
	$(PY) -m tools.dist --twice $(ARGS)

# The Debian package beside the wheel, in dist/; ARGS="--architecture arm64".
deb: $(VENV)/dev
	$(PY) -m tools.debian_package $(ARGS)

# With the lowest versions of all packages that pyproject.toml allows, in an environment of their own.
LOWEST := $(VENV)-lowest
lowest: $(VENV)/dev
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(PY) -m tools.lowest > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: -r $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -e . -c $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/dev.txt -c $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pytest -q -p tests.unit_only -n 2 --dist worksteal $(UNIT)

clean:
	rm -rf $(VENV) $(LOWEST) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
