# One way in for people and for CI: `make` shows what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build check bench bench-micro test servers-test test-versions versions-test test-debezium test-targets simulate chaos demo up down

# CI takes the committed Cargo.lock or fails; a developer's build may update it.
LOCKED := $(if $(CI),--locked)
# Offline, the pinned compiler may be there under another name; then that name is used instead of a download.
TOOLCHAIN := $(shell tools/setup.sh toolchain)
ifneq ($(TOOLCHAIN),)
export RUSTUP_TOOLCHAIN := $(TOOLCHAIN)
endif

# The whole workspace, whichever tests are wanted of it: for a part of it features can be others, and librdkafka would be compiled
# once more.
TEST := cargo test --workspace $(LOCKED)

help: ## what there is
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what building and testing need; quick when nothing is missing
	@tools/setup.sh

build: ## the release binary
	@tools/setup.sh rust build
	cargo build --release $(LOCKED)

check: ## format, lints, unit tests, licences: no servers
	@tools/setup.sh rust build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(LOCKED) -- -D warnings
	$(TEST) --lib --bins
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	else echo 'cargo-deny is not installed: licences and sources are not checked'; fi

# `with` stops what it started, whatever happens, and starts nothing that is given from outside: see tools/servers.sh.
test: check ## check, then tests over real servers, then the demo
	tools/servers.sh with pg mysql mariadb kafka -- $(MAKE) --no-print-directory servers-test

# Tests wait for servers for most of their time: more of them run at once than there are cores.
TEST_THREADS ?= 4

# The demo runs what the tests ran. A build by itself would be another one: what tests depend on turns on features, of the
# crate itself (failpoints) and of others.
servers-test:
	@tools/setup.sh chromium
	$(TEST) --test main -- --test-threads $(TEST_THREADS)
	@set -e; target=$$(cargo metadata --format-version 1 --no-deps $(LOCKED) | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'); \
	for db in postgres mysql; do $(MAKE) --no-print-directory demo DB=$$db TAILPOST="$$target/debug/tailpost"; done

SEEDS ?= 1000000
FROM ?= 0

simulate: ## SEEDS runs of a simulated pipeline from seed FROM on, with every kind of fault
	@tools/setup.sh rust build
	TAILPOST_SIM_SEEDS=$(SEEDS) TAILPOST_SIM_FROM=$(FROM) TAILPOST_SIM_THREADS=$$(nproc) \
	  $(TEST) --profile simulate --lib -- simulation::seeds --nocapture

# What depends on the server most: the example, ways in, slots that are lost, shutdowns and crashes, places inside
# transactions, publications, and the text of every type. Not part of `test`.
VERSIONS ?= pg15 pg16 pg17 pg18 mysql mysql80 mariadb106 mariadb mariadb114 mariadb11
OF_EACH_PG := delivery::the_example connection::each slot:: refusal::a_server outage::a_server publication:: row_keys:: \
	 rows:: envelopes outbox:: --skip ::mysql --skip ::mariadb --skip mysql_
OF_EACH_MYSQL := _keeps_through_a_crash delivery::an_event delivery::the_example_of ordering::interleaved outage::a_server \
	policies::rows resume::killed standby:: mysql_rows envelopes --skip ::postgres

test-versions: ## a part of the tests over every PostgreSQL, MySQL and MariaDB that can be fetched here
	tools/servers.sh with pg mysql mariadb kafka -- $(MAKE) --no-print-directory versions-test

versions-test:
	set -e; for version in $(VERSIONS); do echo "--- $$version"; tools/servers.sh bin $$version; \
	case $$version in \
	pg*) TAILPOST_TEST_PG_KIND=$$version env -u TAILPOST_TEST_PG_URL tools/servers.sh with $$version -- \
	  $(TEST) --test main -- $(OF_EACH_PG);; \
	mysql*) TAILPOST_TEST_MYSQL_KIND=$$version env -u TAILPOST_TEST_MYSQL_URL tools/servers.sh with $$version -- \
	  $(TEST) --test main -- $(OF_EACH_MYSQL) --skip ::mariadb;; \
	mariadb*) TAILPOST_TEST_MARIADB_KIND=$$version env -u TAILPOST_TEST_MARIADB_URL tools/servers.sh with $$version -- \
	  $(TEST) --test main -- $(OF_EACH_MYSQL) --skip ::mysql;; \
	esac; done

test-debezium: ## changing over from a Debezium connector under load; fetches Kafka Connect and Debezium, about 100 MB
	@tools/setup.sh rust build kafka
	TAILPOST_TEST_DEBEZIUM=$$(tools/servers/debezium.sh) tools/servers.sh with pg mysql kafka -- \
	  $(TEST) --test main -- --nocapture --test-threads 1 --include-ignored migration::

test-targets: ## the HTTP sink with Apache Solr and RDF4J's server; fetches both, about 140 MB
	@tools/setup.sh rust build kafka
	eval "$$(tools/servers/targets.sh)" && tools/servers.sh with pg mysql kafka -- \
	  $(TEST) --test main -- --test-threads 1 --include-ignored solr:: rdf4j::

# The development profile: the demo measures nothing.
DB ?= postgres
TAILPOST ?= cargo run --quiet $(LOCKED) --

demo: ## the whole way on this machine, by itself; DB=mysql or DB=mariadb: with that
	@case "$(DB)" in \
	postgres) variable=TAILPOST_PG_BIN server=pg;; \
	mysql) variable=TAILPOST_MYSQL_BIN server=mysql;; \
	mariadb) variable=TAILPOST_MARIADB_BIN server=mariadb;; \
	*) echo 'DB is postgres, mysql or mariadb' >&2; exit 2;; esac; \
	tools/setup.sh rust build && bin=$${!variable:-$$(tools/servers.sh bin $$server)} && \
	PATH="$$bin:$$PATH" env "$$variable=$$bin" $(TAILPOST) demo --db $(DB)

# The instructions are counted, not timed: they can be compared from day to day. KEEP=keep makes the new counts the kept ones.
KEEP ?=

bench-micro: ## single steps timed, and the instructions of a fixed replay against those that are kept: KEEP=keep
	@tools/setup.sh rust build valgrind
	cargo bench --bench micro $(LOCKED)
	LOCKED=$(LOCKED) benches/micro/instructions.sh $(KEEP)

# Servers of its own; the same seed gives the same faults. RUN: at_least_once, two_instances or exactly_once; by default all of
# them, one after another.
SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
MINUTES ?= 5
RUN ?=

chaos: ## faults at random moments over real servers, and the count: SEED=n MINUTES=m
	TAILPOST_CHAOS_SEED=$(SEED) TAILPOST_CHAOS_MINUTES=$(MINUTES) \
	$(TEST) --test main -- --nocapture --test-threads 1 --include-ignored chaos::$(RUN)

# Its servers have a folder of their own: fresh ones, with settings for measuring, whatever else is up.
PAIRS ?=
ONLY ?=
QUICK ?=
BENCH_SERVERS ?= $(or $(TMPDIR),/tmp)/tailpost-bench-$(shell id -u)
BENCH_PG := -c max_replication_slots=300 -c max_wal_senders=300 -c max_connections=500 -c max_wal_size=8GB

bench: build ## measure against yardsticks, into docs/performance.md: PAIRS=5; ONLY=postgres-tcp,mysql QUICK=1: into target/bench
	cargo build --release --package tailpost-bench $(LOCKED)
	@set -e; target=$$(cargo metadata --format-version 1 --no-deps $(LOCKED) | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'); \
	export TAILPOST="$$target/release/tailpost" RESULTS="$(if $(ONLY)$(QUICK),$$target/bench,docs)"; \
	export PAIRS="$(PAIRS)" ONLY="$(ONLY)" QUICK="$(QUICK)" TAILPOST_SERVERS="$(BENCH_SERVERS)"; \
	export KAFKA_JIT=full KAFKA_HEAP=1g KAFKA_OPTS="log.segment.delete.delay.ms=1000"; \
	for version in 14 15 16 17 18 19; do export "PG$${version}_OPTS=$(BENCH_PG)"; done; \
	tools/servers.sh with pg mysql mariadb kafka -- "$$target/release/tailpost-bench"

up: ## start private servers: PostgreSQL, MySQL, MariaDB and Kafka
	@tools/servers.sh up pg mysql mariadb kafka
	@echo 'eval "$$(tools/servers.sh env)" sets TAILPOST_TEST_... to their addresses'

down: ## stop all private servers; their data stays
	@tools/servers.sh down
