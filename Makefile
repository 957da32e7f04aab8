# `make demo` and `make test` do everything on a fresh machine; `make help` lists the rest.
# For .venv; without it tools/choose_python.py looks for a quick one.
PY ?=
V := .venv/bin
PIP := $(V)/python -m pip install -q --disable-pip-version-check
STAMP := .build
# What setup.py compiles: hot/ and the modules it lists.
HOT := $(wildcard src/aerobee/hot/*/*.py) $(shell sed -n 's,^    "\(.*/.*\)"\,$$,src/aerobee/\1.py,p' setup.py)

.PHONY: help setup demo check format test test-compiled crash-images bit-flips simulate kill-rounds crowd junk hostile fuzz bench bench-client bench-peer bench-growth bench-spark spark-kills million-timers spark-cluster interop golden clean install-check properties
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP)/installed $(STAMP)/compiled ## .venv/ with everything, hot/ compiled where a C compiler is found

$(STAMP)/installed: requirements-dev.txt pyproject.toml setup.py
	@mkdir -p $(STAMP)
	@test -x $(V)/python || { python="$(or $(PY),$$(python3 tools/choose_python.py))" && \
		python3 tools/patience.py "making .venv" "$$python" -m venv .venv; }
	@python3 tools/patience.py "installing into .venv" $(PIP) -r requirements-dev.txt
	@AEROBEE_PURE=1 python3 tools/patience.py "installing aerobee" $(PIP) --no-build-isolation --no-deps -e .
	@touch $@

# The stamp says what was built, so that lost .so files are built again.
LOST := $(shell grep -qs modules $(STAMP)/compiled && ! ls src/aerobee/hot/log/*.so >/dev/null 2>&1 && echo lost)
.PHONY: lost
$(STAMP)/compiled: $(STAMP)/installed $(HOT) $(LOST)
	@python3 tools/patience.py "compiling the hot path" $(V)/python tools/compile_hot.py $@

demo: setup ## 100,000 orders through two broker groups, one killed mid-way; Spark adds them up: nothing lost, nothing twice
	@$(V)/python -m aerobee.demo --picture out/demo.png

format: ## rewrite the source in the house style
	@$(V)/ruff format src tests bench tools setup.py && $(V)/ruff check --fix -q src tests bench tools setup.py

check: $(STAMP)/installed ## style, types and layering
	@$(V)/ruff format --check -q src tests bench tools setup.py && $(V)/ruff check src tests bench tools setup.py
	@$(V)/mypy
	@$(V)/lint-imports --no-cache

test: setup check ## the whole suite, hot/ interpreted
	@AEROBEE_PURE=1 $(V)/pytest --session-timeout 1140 -m "not slow and not interop"

test-compiled: setup ## the same tests with hot/ compiled
	@AEROBEE_REQUIRE_COMPILED=1 $(V)/pytest --session-timeout 1140 -m "not slow and not interop"

kill-rounds: setup ## 50 kills (and 50 stops) of one of two broker groups under load, for each kind of flush
	@AEROBEE_PURE=1 $(V)/pytest -s -m slow --timeout 1800 tests/e2e/test_kill_rounds.py

install-check: setup ## pip install . in fresh environments, with and without a C compiler; the demo from there
	@$(V)/pytest -s -m slow --timeout 3000 tests/e2e/test_install.py

crowd: setup ## 1,000 connections and 10,000 topics on one broker
	@AEROBEE_PURE=1 $(V)/pytest -s -m slow --timeout 900 tests/e2e/test_crowd.py

million-timers: setup ## 1,000,000 pending timers: memory, start-up, rate of delivery
	@AEROBEE_PURE=1 $(V)/pytest -s -m slow --timeout 1800 tests/e2e/test_million_timers.py

fuzz: setup ## mutated bytes into every reader, compiled and interpreted (EXECUTIONS= of each, SEED=, ARGS="--from TARGET")
	@$(V)/python -m aerobee.testing.fuzz --executions $(or $(EXECUTIONS),300000) --seed $(or $(SEED),1) $(ARGS)
	@AEROBEE_PURE=1 $(V)/python -m aerobee.testing.fuzz --executions $(or $(EXECUTIONS),300000) --seed $(or $(SEED),2) $(ARGS)

properties: setup ## the property tests with examples drawn anew (in make test they are the same every time)
	@AEROBEE_FUZZ=1 AEROBEE_PURE=1 $(V)/pytest -m "not slow and not interop" tests/property tests/golden tests/unit

junk: setup ## every wrong field and body of every request code
	@AEROBEE_PURE=1 $(V)/pytest -s -m slow --timeout 900 tests/e2e/test_junk.py

hostile: setup ## whatever a client can send that it should not, against real servers (FROM= a case, ARGS="-k ...")
	@AEROBEE_REQUIRE_COMPILED=1 AEROBEE_HOSTILE_FROM="$(FROM)" $(V)/pytest -s --timeout 900 tests/hostile $(ARGS)

bench: setup ## what the codec, the store and a client cost per message (the client beside others: Maven and Java needed)
	@for pure in "" 1; do for part in hot_codec store; do \
		AEROBEE_PURE=$$pure PYTHONPATH=.:src $(V)/python bench/$$part.py || exit 1; echo; done; done
	@$(MAKE) -s bench-client

bench-client: setup ## a send by our client, by the official gRPC Python client and by Java's (Maven and Java needed)
	@$(V)/python bench/client.py $(ARGS)

bench-peer: setup ## CPU, rates and latency beside Apache's broker (Maven, Java and a C compiler needed)
	@PYTHONPATH=.:src $(V)/python bench/peer.py $(ARGS)

bench-growth: setup ## what grows with topics, connections, consumers and backlog (a C compiler and 12 GB of disk needed)
	@PYTHONPATH=.:src $(V)/python bench/growth.py $(ARGS)

bench-spark: setup ## what Spark reads of a topic, a store and an archive, beside the same rows from Parquet (Java needed)
	@PYTHONPATH=.:src $(V)/python bench/spark.py $(ARGS)

spark-kills: setup ## 20 kills of a Spark driver inside and between batches: nothing lost, nothing twice (Java needed)
	@AEROBEE_PURE=1 $(V)/pytest -s -m slow --timeout 3600 tests/spark/test_kill_driver.py

crash-images: setup ## 200,000 power cuts of seeded store runs (about half an hour; IMAGES=, SEED=)
	@$(V)/python -m aerobee.testing.crashimages --images $(or $(IMAGES),200000) --seed $(or $(SEED),1)
	@$(V)/pytest -m slow tests/fault

bit-flips: setup ## 10,000 flipped bits in every kind of store file (FLIPS=, SEED=)
	@$(V)/python -m aerobee.testing.bitflips --flips $(or $(FLIPS),10000) --seed $(or $(SEED),1)

simulate: setup ## a simulated cluster under faults, from each seed (SEEDS=0..99; 0..9999 is the slow suite; ARGS=--trace)
	@$(V)/python -m aerobee.testing.simulation --seeds $(or $(SEEDS),0..99) $(ARGS)

spark-cluster: setup ## a pipeline on a Spark standalone cluster, and what of Spark is slow to test (Java needed)
	@AEROBEE_PURE=1 $(V)/pytest -s -m slow --timeout 900 tests/spark/test_standalone.py tests/spark/test_pipelines.py

interop: setup ## with Apache's broker, name server and Java clients (Maven and Java needed)
	@AEROBEE_PURE=1 $(V)/pytest -vv -s -rs -m interop --timeout 600 tests/interop

golden: ## the golden files again, out of Apache's own classes (Maven and Java needed)
	@mkdir -p out/golden
	@mvn -q -B -f tests/golden/java/pom.xml -Dgolden.out=$(CURDIR)/out/golden compile \
		dependency:build-classpath -Dmdep.outputFile=$(CURDIR)/out/golden/classpath.txt
	@java -Xmx512m -Duser.home=$(CURDIR)/out/golden -cp "out/golden/classes:$$(cat out/golden/classpath.txt)" \
		golden.Main tests/golden/data > out/golden/log
	@git status --short tests/golden/data

clean: ## forget .venv and every build product
	@rm -rf .venv .build build out src/*.egg-info && find src -name '*.so' -delete
