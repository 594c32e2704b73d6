# Marula's verbs. `make help` lists them; what each needs is installed on the first run by tools/setup.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# In CI every run is a fresh clone: one target folder outside it, so that only our own crates compile again.
ifdef CI
export CARGO_TARGET_DIR ?= $(shell tools/setup cache)/target
endif
target := $(or $(CARGO_TARGET_DIR),target)
marula := $(target)/release/marula
export MARULA_BIN := $(abspath $(marula))

.PHONY: help serve test build unit tidy probe sweep python unified node java rust sim crash writes updates bench diff fuzz lint setup package

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

serve: program ## build and start Marula on 127.0.0.1:27017 with its data in ./data (ARGS="--port 27018")
	@exec $(marula) serve $(if $(findstring --dbpath,$(ARGS)),,--dbpath data) $(ARGS)

# One suite that fails does not hide the others.
test: build ## every test
	@$(MAKE) --keep-going unit tidy probe sweep python unified node java rust bench-smoke diff-smoke sim-smoke
	@echo "make test: everything passed"

# On a terminal cargo shows how many crates of how many are compiled; elsewhere it only reports errors.
quiet := $(shell [ -t 2 ] || echo --quiet)

# The server alone: running it needs none of the programs that measure it.
.PHONY: program
program: setup
	@cargo build --release $(quiet) --package marula

# One call for all programs, so that no crate is compiled again with other features for one of them.
build: setup ## the release build
	@cargo build --release $(quiet) --package marula --package marula-bench --package marula-diff

# Everything that may have to be downloaded or compiled for the build, first and loudly.
setup:
	@tools/setup build

unit: setup ## unit tests of the crates
	@cargo test --workspace --no-fail-fast --quiet $(ARGS)

tidy: setup ## arrows between crates, names, module docs, generated pages
	@cargo run --quiet --package xtask -- tidy
	@cargo run --quiet --package xtask -- docs --check

probe: build ## compare with mongod's recorded answers (URI=mongodb://… for a server that runs already)
	@"$$(tools/setup python)" tests/surface/check.py $(if $(URI),--target "$(URI)") $(ARGS)

sweep: build ## each field of each command with values of each type, as mongod answered (MONGOD=program for all, beside it)
	@"$$(tools/setup python)" tests/surface/sweep.py $(if $(MONGOD),--mongod "$(MONGOD)") $(ARGS)

python: build ## black box through pymongo, crash rounds included (ARGS="-k cursor")
	@"$$(tools/setup python)" -m pytest -q tests/python tests/crash $(ARGS)

unified: build ## MongoDB's unified driver tests, by pymongo and by Node (ARGS="--as set --drivers node --areas sessions")
	@NODE_PATH="$$(tools/setup node)" "$$(tools/setup python)" tests/unified/run.py --suite "$$(tools/setup unified)" $(ARGS)

java: build ## black box through Debezium's embedded engine, where there is Java 17 and Maven
	@"$$(tools/setup python)" -m pytest -q -rs tests/java $(ARGS)

node: build ## black box through the Node driver and mongosh
	@NODE_PATH="$$(tools/setup node)" node --test --test-reporter=spec tests/node/*.test.js $(ARGS)

rust: build ## black box through the official Rust driver
	@cargo test --quiet --manifest-path tests/rust/Cargo.toml --target-dir $(abspath $(target))/driver $(ARGS)

# Over the simulated distributed store, with its limits; what needs data in a folder is left out.
sim: export MARULA_SERVE = $(abspath $(marula)) serve --storage-engine sim
sim: build ## probe, sweep, python, unified and node over the simulated distributed store
	@$(MAKE) --keep-going probe sweep unified node
	@"$$(tools/setup python)" -m pytest -q tests/python $(ARGS)

.PHONY: sim-smoke
sim-smoke: export MARULA_SERVE = $(abspath $(marula)) serve --storage-engine sim
sim-smoke: build
	@$(MAKE) probe

crash: build ## kill -9 under load, ROUNDS=100 times
	@MARULA_CRASH_ROUNDS=$(or $(ROUNDS),100) "$$(tools/setup python)" -m pytest -q -s tests/crash $(ARGS)

writes: build ## a million random writes over every kind of index, then validate and check (WRITES=1000000)
	@MARULA_RANDOM_WRITES=$(or $(WRITES),1000000) "$$(tools/setup python)" -m pytest -q -s \
	  tests/python/test_random_writes.py $(ARGS)

updates: build ## random updates with `validate` after every one (UPDATES=100000)
	@MARULA_VALIDATED_UPDATES=$(or $(UPDATES),100000) "$$(tools/setup python)" -m pytest -q -s \
	  tests/python/test_validated_updates.py $(ARGS)

bench: build ## server CPU per operation beside mongod's (ROWS=find,update RUNS=3)
	@$(target)/release/marula-bench table --marula $(marula) --mongod "$$(tools/setup mongod)" \
	  $(if $(ROWS),--rows $(ROWS)) $(if $(RUNS),--runs $(RUNS)) $(ARGS)

# Every row and every comparison with tiny inputs, against Marula alone: keeps them working, measures nothing.
.PHONY: bench-smoke
bench-smoke: build
	@$(target)/release/marula-bench table --marula $(marula) --smoke
	@$(marula) bench run all --scale 0.0001 --seconds 0.05 --runs 1 --out $(target)/bench-smoke

diff: build ## generated cases, Marula beside MONGOD=/path or mongodb://… (ARGS="--cases 200000 --seed 7 --kinds find")
	@$(target)/release/marula-diff --marula "$(or $(URI),$(marula))" --mongod "$(MONGOD)" $(ARGS)

# A few rounds of every kind, Marula compared with another Marula: keeps the generators working.
.PHONY: diff-smoke
diff-smoke: build
	@$(target)/release/marula-diff --marula $(marula) --smoke

# Instrumented as `cargo fuzz` does it, with the compiler that builds everything else. A target keeps what it has learned
# in fuzz/corpus, and what broke it in fuzz/artifacts.
fuzz_flags := -Ctarget-cpu=x86-64-v2 --cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 \
  $(addprefix -Cllvm-args=-sanitizer-coverage-,level=4 inline-8bit-counters pc-table trace-compares)
fuzz_targets := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
fuzz: setup ## any bytes into each parser, SECONDS=60 each (TARGETS="bson log", ARGS="-max_len=4096")
	@RUSTFLAGS="$(fuzz_flags)" cargo build --release $(quiet) --manifest-path fuzz/Cargo.toml \
	  --target-dir $(abspath $(target))/fuzz --target x86_64-unknown-linux-gnu
	@for name in $(or $(TARGETS),$(fuzz_targets)); do \
	  mkdir -p fuzz/corpus/$$name fuzz/artifacts/$$name; \
	  $(target)/fuzz/x86_64-unknown-linux-gnu/release/$$name -max_total_time=$(or $(SECONDS),60) -print_final_stats=1 \
	    -artifact_prefix=fuzz/artifacts/$$name/ $(ARGS) fuzz/corpus/$$name fuzz/seeds/$$name; \
	done

package: program ## the program for others to install: .deb, wheel, npm package, archive (in target/package)
	@rm -rf $(target)/package
	@python3 packaging/make $(marula) $(target)/package "$$(cargo pkgid --package marula | sed 's/.*[#@]//')"

lint: setup ## rustfmt and clippy without warnings, and links in comments
	@cargo fmt --all --check
	@cargo fmt --manifest-path tests/rust/Cargo.toml --check
	@cargo fmt --manifest-path fuzz/Cargo.toml --check
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
	@cargo clippy --manifest-path fuzz/Cargo.toml --target-dir $(target) --all-targets --quiet -- -D warnings
	@cargo doc --workspace --no-deps --document-private-items --quiet
