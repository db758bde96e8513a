# Everything a contributor runs. `make` alone explains itself.

CARGO ?= cargo
# Tools that the checks need and that are not part of the toolchain are kept outside the tree, so that a
# clean checkout finds them again.
ICECORE_TOOLS ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/icecore-tools
export ICECORE_TOOLS
export PATH := $(ICECORE_TOOLS)/bin:$(PATH)

# Where `make bench` measures and what it measures; results are written to $(RESULTS).
BENCH_DIR ?= $(CURDIR)/target/lab
RESULTS ?= $(CURDIR)/target/lab/results
EXPERIMENTS ?= valuation-store commits randwrite randwrite-metadata many-store demo-rss recovery collect history connect crowd randread bulk footprint spill
LAB_OPTIONS ?=
# Cases that each property test tries in `make cases`, and histories that each test on the simulated disk lives through with nothing left
# out: each of those takes two or three minutes for all tests together.
CASES ?= 2048
SIMULATED_CASES ?= 8
# Where `make differential` begins: behind the seeds of `make test`. Another number is another run.
DIFFERENTIAL_SEED ?= 1000000
# How long `make soak` lives, `make differential` runs, and each target of `make fuzz` runs.
HOURS ?= 2
SOAK_SECONDS ?= $(shell expr $(HOURS) '*' 3600)
FUZZ_SECONDS ?= 60
# How long fsx runs in `make mount-suites`.
SECONDS ?= 600

ICECORE := target/release/icecore
# `icecore lab` and `icecore demo` are a program of their own. What cargo compiles depends on the packages that
# it is asked for. Where one of the binaries is wanted, both packages are named: what they share compiles once.
PROGRAMS := --package icecore-cli --package icecore-lab

.DEFAULT_GOAL := help
.PHONY: help demo test lint symbols bench guest guest-studies figure cases differential fuzz soak soak-short mount-suites mount-suites-short tools

help: ## Explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Keep 95 versions of a growing database and prove each one (under a minute, plus the build)
	$(CARGO) build --release --locked $(PROGRAMS)
	$(ICECORE) demo

test: tools ## Run all tests
	$(CARGO) test --locked --workspace

lint: tools ## Check format, lints, documentation, licences and sources of dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items
	scripts/check-dependencies

symbols: ## Build programs and extension, their debug files apart (target/symbols), for profilers and debuggers
	$(CARGO) build --profile symbols --locked $(PROGRAMS) --package icecore-sqlite
	cd target/symbols && for file in icecore icecore-lab libicecore_sqlite.so; do \
		objcopy --only-keep-debug $$file $$file.debug && \
		objcopy --strip-debug --add-gnu-debuglink=$$file.debug $$file || exit 1; \
	done

bench: ## Run the experiments on the filesystem of BENCH_DIR, one JSON document each (takes hours)
	$(CARGO) build --release --locked $(PROGRAMS)
	@mkdir -p $(BENCH_DIR) $(RESULTS)
	for name in $(EXPERIMENTS); do \
		$(ICECORE) lab run $$name --directory $(BENCH_DIR) --json $(LAB_OPTIONS) > $(RESULTS)/$$name.json || exit 1; \
	done

guest: tools ## Build the machine with LVM in which `icecore lab run STUDY --guest` runs (three minutes; GUEST_OPTIONS='--with zfs' more)
	$(CARGO) build --release --locked $(PROGRAMS)
	$(ICECORE) lab guest $(GUEST_OPTIONS)

# A release build: sizes of a debug build are too small for a figure that is a time.
guest-studies: tools ## Studies in the guest that take longer than tests may: how much slower LVM gets, each study on it, mylvmbackup, a crash of the kernel, and ZFS (40 minutes at first)
	$(CARGO) test --release --locked -p icecore-lab --test together -- --ignored --test-threads=1

figure: ## Draw time per iteration from the last `make bench`
	$(ICECORE) lab figure $(RESULTS)/valuation-store.json > docs/valuation.svg

cases: ## Run property tests with many more cases (CASES=n), and simulated crashes with nothing left out (SIMULATED_CASES=n)
	ICECORE_TEST_CASES=$(CASES) ICECORE_PROPTEST_CASES=$(CASES) ICECORE_CASES=$(SIMULATED_CASES) $(CARGO) test --release --locked --workspace

differential: ## Compare SQLite in a pool with SQLite on plain files, for HOURS; failures print their seed and script
	ICECORE_SEED=$(DIFFERENTIAL_SEED) ICECORE_SECONDS=$$(( $(HOURS) * 3600 )) $(CARGO) test --release --locked \
		--package icecore-sqlite --test differential -- --nocapture

fuzz: ## Run each fuzz target for FUZZ_SECONDS (needs a nightly toolchain)
	FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz $(TARGETS)

# On a real disk, in real time: `icecore lab run soak --minutes 120`.
soak: ## Live through whole lives of pools on a simulated disk, for HOURS or SOAK_SECONDS; failures name their seed
	$(CARGO) build --release --locked $(PROGRAMS) --package icecore-sim --bin soak
	target/release/soak --seconds $(SOAK_SECONDS) --keep target/soak-failures $(SOAK_OPTIONS)

soak-short: ## The same for two minutes at most, the same lives every time (those of pools with threads but for the order of what they do)
	$(MAKE) --no-print-directory soak SOAK_SECONDS=120 SOAK_OPTIONS='--seed 1 --threaded 10 --lives 150'

mount-suites: tools ## Run pjdfstest, fsx (for SECONDS), fio, stress-ng, git, tar, rsync and SQLite's shell on a mount
	$(CARGO) build --release --locked $(PROGRAMS) --bin icecore
	SUITE_SECONDS=$(SECONDS) scripts/mount-suites

mount-suites-short: tools ## The same in a minute or so
	$(CARGO) build --release --locked $(PROGRAMS) --bin icecore
	scripts/mount-suites short

tools:
	@scripts/install-tools
