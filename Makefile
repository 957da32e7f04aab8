# `make demo` and `make test` do everything on a fresh machine; `make help` lists the rest.
# The Python for .venv. Without it tools/choose_python.py looks for one that was built with optimisation.
PY ?=
V := .venv/bin
PIP := $(V)/python -m pip install -q --disable-pip-version-check
STAMP := .build
# The modules that setup.py compiles: hot/ and those that it lists.
HOT := $(wildcard src/aerobee/hot/*/*.py) $(shell sed -n 's,^    "\(.*/.*\)"\,$$,src/aerobee/\1.py,p' setup.py)

.PHONY: help release setup demo check axe dashboard-test dashboard-soak dashboard-pictures tls-renewals format test test-interpreted crash-images bit-flips simulate failovers kill-rounds ordered-faults crowd junk hostile fuzz fuzz-grpc long-handler bench bench-client bench-access bench-peer bench-pop bench-proxy bench-replicas bench-growth bench-spark spark-kills etcd million-timers spark-cluster interop interop-grpc migrate-gib golden clean install-check properties h2spec
help: ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP)/installed $(STAMP)/compiled ## install everything into .venv/ and compile hot/ where a C compiler is found

$(STAMP)/installed: requirements-dev.txt pyproject.toml setup.py
	@mkdir -p $(STAMP)
	@test -x $(V)/python || { python="$(or $(PY),$$(python3 tools/choose_python.py))" && \
		python3 tools/patience.py "making .venv" "$$python" -m venv .venv; }
	@python3 tools/patience.py "installing into .venv" $(PIP) -r requirements-dev.txt
	@AEROBEE_PURE=1 python3 tools/patience.py "installing aerobee" $(PIP) --no-build-isolation --no-deps -e .
	@touch $@

# The stamp says what was built, so that .so files that were deleted are built again.
LOST := $(shell grep -qs modules $(STAMP)/compiled && ! ls src/aerobee/hot/log/*.so >/dev/null 2>&1 && echo lost)
.PHONY: lost
$(STAMP)/compiled: $(STAMP)/installed $(HOT) $(LOST)
	@python3 tools/patience.py "compiling the hot path" $(V)/python tools/compile_hot.py $@

demo: setup ## send 100,000 orders through a group of three replicas, kill its master mid-way, add the orders up in Spark
	@$(V)/python -m aerobee.demo --picture out/demo.png

format: ## rewrite the source in the house style
	@$(V)/ruff format src tests bench tools setup.py && $(V)/ruff check --fix -q src tests bench tools setup.py

check: $(STAMP)/installed ## check style, types and layering
	@$(V)/ruff format --check -q src tests bench tools setup.py && $(V)/ruff check src tests bench tools setup.py
	@$(V)/mypy
	@$(V)/lint-imports --no-cache

# Two files run side by side: many tests wait for a process or a clock. The tests of one file share its fixtures.
SUITE := $(V)/pytest -m "not slow and not interop" -n $(or $(WORKERS),2) --dist loadfile --session-timeout
# These tests run a second time on the interpreted source: it must do what the compiled modules do, and bugs can be
# planted in it.
BOTH_FORMS := tests/unit/hot tests/unit/store tests/property tests/golden tests/fault/test_crash_mutations.py tests/fault/test_bit_flips.py \
	tests/simulation/test_planted_pops.py tests/simulation/test_pop_groups.py tests/simulation/replicas/test_replica_planted.py

test: setup check ## run the whole suite compiled, then the tests of hot/, store, properties and golden files interpreted
	@$(MAKE) -s etcd || echo "test: etcd could not be built, so the tests that need it are skipped"
	@$(MAKE) -s h2spec || echo "test: h2spec could not be built, so its test is skipped"
	@if [ -n "$$AEROBEE_PURE" ] || grep -qs interpreted $(STAMP)/compiled; then \
		echo "test: nothing is compiled here, so the whole suite runs interpreted" && AEROBEE_PURE=1 $(SUITE) 1380; \
	elif grep -qs modules $(STAMP)/compiled; then \
		AEROBEE_REQUIRE_COMPILED=1 $(SUITE) 1380 && AEROBEE_PURE=1 $(SUITE) 300 $(BOTH_FORMS); \
	else echo "test: the compiled modules could not be built, see make setup" && exit 1; fi

test-interpreted: setup ## run the whole suite interpreted
	@AEROBEE_PURE=1 $(SUITE) 1800

tls-renewals: setup ## renew the certificates of running servers 1,000 times under load (RENEWALS=)
	@RENEWALS=$(or $(RENEWALS),1000) $(V)/pytest -s --timeout 1800 tests/e2e/test_tls_files.py -k reload

axe: ## fetch axe-core 4.14.0, with which the browser tests check pages (needs npm)
	@python3 tools/fetch_axe.py

dashboard-soak: setup ## keep a dashboard busy for 20 minutes: its memory, its series, and what a fast tail costs the broker (MINUTES=)
	@MINUTES=$(or $(MINUTES),20) $(V)/pytest -s -m slow --timeout 7200 tests/e2e/test_dashboard_soak.py

dashboard-pictures: setup ## take the pictures of docs/dashboard.md from a running shop (needs Chromium; ARGS="--all out/pages" takes every page)
	@$(V)/python tools/dashboard_pictures.py $(or $(ARGS),docs/img)

dashboard-test: setup axe ## drive every page and change of the dashboard in Chromium, against a cluster with replicas, users, dead letters
	@$(V)/pytest -s -rs --timeout 900 tests/browser tests/e2e/test_dashboard_roles.py tests/e2e/test_dashboard_work.py tests/e2e/test_dashboard_operating.py \
		tests/e2e/test_dashboard_nginx.py tests/e2e/test_dashboard_scale.py $(ARGS)

failovers: setup etcd ## break a group of three processes with etcd under load (ROUNDS=0..9; 0..199 is the long suite; ARGS=--sync-flush, or "--apache --min-in-sync 1" for Apache's controller mode)
	@$(V)/python -m aerobee.testing.failovers --rounds $(or $(ROUNDS),0..9) $(ARGS)

kill-rounds: setup ## kill (and stop) one of two broker groups under load 50 times, for each kind of flush
	@$(V)/pytest -s -m slow --timeout 1800 tests/e2e/test_kill_rounds.py

ordered-faults: setup ## check the order by key under faults of brokers, name server and consumers (ROUNDS=1..10, ARGS="--replicas 3")
	@$(V)/python -m aerobee.testing.orderedfaults --rounds $(or $(ROUNDS),1..10) $(ARGS)

install-check: setup ## run pip install . and the demo in fresh environments, with and without a C compiler
	@$(V)/pytest -s -m slow --timeout 3000 tests/e2e/test_install.py

release: setup ## build sdist and wheels into out/release, and run each from an empty environment (ARGS="--only pure")
	@$(V)/python tools/release.py $(ARGS)

.PHONY: soak metrics-cost image-check
metrics-cost: setup ## count the instructions that metrics cost a message, by valgrind (some minutes)
	@$(V)/pytest -s -m slow tests/e2e/test_metrics_cost.py

image-check: setup ## build the image and run it with a read-only root (needs podman or docker)
	@$(V)/pytest -s -m slow -rs tests/e2e/test_image.py

soak: setup ## run servers and all kinds of clients for 20 minutes; their memory must stay flat (MINUTES=)
	@$(V)/python -m aerobee.testing.soak --minutes $(or $(MINUTES),20) $(ARGS)

crowd: setup ## test 1,000 connections and 10,000 topics on one broker
	@$(V)/pytest -s -m slow --timeout 900 tests/e2e/test_crowd.py

million-timers: setup ## test 1,000,000 pending timers: memory, start-up, rate of delivery
	@$(V)/pytest -s -m slow --timeout 1800 tests/e2e/test_million_timers.py

fuzz: setup ## feed mutated bytes to every reader, compiled and interpreted (EXECUTIONS= of each, SEED=, ARGS="--from TARGET")
	@$(V)/python -m aerobee.testing.fuzz --executions $(or $(EXECUTIONS),300000) --seed $(or $(SEED),1) $(ARGS)
	@AEROBEE_PURE=1 $(V)/python -m aerobee.testing.fuzz --executions $(or $(EXECUTIONS),300000) --seed $(or $(SEED),2) $(ARGS)

fuzz-grpc: setup ## feed changed frames of HTTP/2 with calls of gRPC to a connection (FRAMES=10000000, SEED=, FROM= a chunk to go on with)
	@$(V)/python -m aerobee.testing.fuzz.grpcframes --frames $(or $(FRAMES),10000000) --seed $(or $(SEED),1) --from $(or $(FROM),0)

long-handler: setup ## let a 5.x client handle a message for 200 s while its broker is started again (takes 5 minutes)
	@$(V)/pytest -s -m slow --timeout 900 tests/e2e/test_grpc_long.py

properties: setup ## run the property tests with new examples (make test uses the same ones every time)
	@AEROBEE_FUZZ=1 $(V)/pytest -m "not slow and not interop" tests/property tests/golden tests/unit

junk: setup ## send every wrong field and body of every request code
	@$(V)/pytest -s -m slow --timeout 900 tests/e2e/test_junk.py

hostile: setup ## send what no client should send to real servers (FROM= a case, ARGS="-k ...")
	@AEROBEE_REQUIRE_COMPILED=1 AEROBEE_HOSTILE_FROM="$(FROM)" $(V)/pytest -s --timeout 900 tests/hostile $(ARGS)

bench: setup ## measure the cost of a message in codec, store and client (the client beside others: needs Maven and Java)
	@for pure in "" 1; do for part in hot_codec store; do \
		AEROBEE_PURE=$$pure PYTHONPATH=.:src $(V)/python bench/$$part.py || exit 1; echo; done; done
	@$(MAKE) -s bench-client

bench-client: setup ## measure a send by Aerobee's client, the official gRPC Python client and Java's (needs Maven and Java)
	@$(V)/python bench/client.py $(ARGS)

bench-peer: setup ## measure CPU, rates and latency beside Apache's broker (needs Maven, Java and a C compiler)
	@PYTHONPATH=.:src $(V)/python bench/peer.py $(ARGS)

bench-pop: setup ## measure POP beside Apache's broker: pops, acknowledgements one by one and together (needs Maven and Java)
	@PYTHONPATH=.:src $(V)/python bench/pop.py $(ARGS)

bench-proxy: setup ## measure gRPC sends, receives and acknowledgements beside Apache's proxy (needs Maven, Java and a C compiler)
	@PYTHONPATH=.:src $(V)/python bench/proxy.py $(ARGS)

bench-access: setup ## measure what users and rights cost a send, in memory and beside Apache's broker (needs Maven, Java and a C compiler)
	@PYTHONPATH=.:src $(V)/python bench/access.py
	@PYTHONPATH=.:src $(V)/python bench/accesspeer.py $(ARGS)

bench-replicas: setup ## measure a master with one slave beside Apache's: CPU of both, rates, latency (needs Maven, Java and a C compiler)
	@PYTHONPATH=.:src $(V)/python bench/replicas.py $(ARGS)

bench-growth: setup ## measure what grows with topics, connections, consumers and backlog (needs a C compiler and 12 GB of disk)
	@PYTHONPATH=.:src $(V)/python bench/growth.py $(ARGS)

bench-spark: setup ## measure Spark on a topic, a store, an archive, beside Parquet and Kafka (needs Java, Maven; ARGS=--no-kafka without)
	@PYTHONPATH=.:src $(V)/python bench/spark.py $(ARGS)

spark-kills: setup ## kill Spark drivers, brokers, the name server, masters, under all levels, Delta and Iceberg; goes on where it was interrupted (ROUNDS=20, FRESH=1, needs Java)
	@AEROBEE_KILL_ROUNDS=$(or $(ROUNDS),20) AEROBEE_KILLS_STATE=out/spark-kills.json FRESH=$(FRESH) $(V)/pytest -s -m slow --timeout 7200 tests/spark/test_kill_driver.py

crash-images: setup ## test 200,000 power cuts of seeded store runs (about half an hour; IMAGES=, SEED=)
	@$(V)/python -m aerobee.testing.crashimages --images $(or $(IMAGES),200000) --seed $(or $(SEED),1)
	@$(V)/pytest -m slow tests/fault

bit-flips: setup ## test 10,000 flipped bits in every kind of store file (FLIPS=, SEED=)
	@$(V)/python -m aerobee.testing.bitflips --flips $(or $(FLIPS),10000) --seed $(or $(SEED),1)

simulate: setup ## run a simulated cluster under faults, from each seed (SEEDS=0..99; 0..9999 is the slow suite; ARGS=--trace)
	@$(V)/python -m aerobee.testing.simulation --seeds $(or $(SEEDS),0..99) $(ARGS)

etcd: ## build etcd 3.6.16 into .build/etcd for tests of replicated groups (needs Go; without it those tests are skipped)
	@python3 tools/build_etcd.py

h2spec: ## build h2spec 2.2.1 into .build/h2spec, for the test of our HTTP/2 (needs Go; without it that test is skipped)
	@python3 tools/build_h2spec.py

spark-faults: setup ## read with Spark while brokers come and go: complete or an error; goes on where it was interrupted (ROUNDS=1..50, FRESH=1, needs Java)
	@ROUNDS=$(or $(ROUNDS),1..50) AEROBEE_FAULTS_STATE=out/spark-faults.json FRESH=$(FRESH) $(V)/pytest -s -m slow --timeout 3600 tests/spark/test_read_faults.py

spark-cluster: setup ## test a pipeline on a Spark standalone cluster, and other slow tests of Spark (needs Java)
	@$(V)/pytest -s -m slow --timeout 900 tests/spark/test_standalone.py tests/spark/test_pipelines.py tests/spark/test_other_masters.py

interop: setup ## test with Apache's broker, name server and Java clients (needs Maven and Java)
	@$(V)/pytest -vv -s -rs -m interop --timeout 600 tests/interop

interop-grpc: setup ## test with RocketMQ's 5.x clients for Java, Python, Node, Go and Rust (those whose tools are missing are skipped)
	@$(V)/pytest -vv -s -rs -m interop --timeout 3600 tests/interop/test_grpc_clients.py tests/interop/test_grpc_languages.py $(ARGS)

migrate-gib: ## move 1 GiB from Apache's broker and back under load (needs Maven and Java; MIB= another size)
	@AEROBEE_MIGRATE_MIB=$(or $(MIB),1024) $(V)/pytest -s -m interop tests/interop/test_migration.py -k there_and_back

golden: ## make the golden files again by Apache's own classes (needs Maven and Java)
	@mkdir -p out/golden
	@mvn -q -B -f tests/golden/java/pom.xml -Dgolden.out=$(CURDIR)/out/golden compile \
		dependency:build-classpath -Dmdep.outputFile=$(CURDIR)/out/golden/classpath.txt
	@java -Xmx512m -Duser.home=$(CURDIR)/out/golden -cp "out/golden/classes:$$(cat out/golden/classpath.txt)" \
		golden.Main tests/golden/data > out/golden/log
	@git status --short tests/golden/data

clean: ## remove .venv and every build product
	@rm -rf .venv .build build out src/*.egg-info && find src -name '*.so' -delete
