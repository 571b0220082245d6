# Weir's commands. On a fresh machine with a Rust toolchain, `make demo` and `make test` do all their set-up.
#
#   make demo       build, and watch programs stop stalling (under 90 s with the build done); leaves target/demo/report.html
#   make test       the workspace's own tests, then real programs through mounts: what a change has to pass
#   make test-all   the same, and the end-to-end tests that take long: what CI runs
#   make test-long  the long forms of all tests
#   make coverage   the lines of crates/* that the workspace's tests run, as a table
#   make crash-test power cuts: simulated ones at every device request, and of emulated disks
#   make crash-test-bucket  500 kills of the daemon, of weir-bucket and of the store beneath a program that saves files (a quarter of an hour);
#                   with WEIR_STORE=minio on MinIO
#   make crash-test-external  2,030 kills and power cuts of seven loads in sessions, with an observer outside (half an hour)
#   make crash-test-names  200,000 simulated cuts of names and data together, and of their recoveries
#   make miri       the lane's accesses to shared memory under Miri, where a nightly toolchain has it (minutes)
#   make fuzz       everything that reads what others can write, fuzzed: three minutes a target
#   make bench      the figures of docs/results/engine.md on this machine's own disk, both sides of each in one run
#   make bench-lane  programs under 'weir run' on this machine's own disk, the quick form (at most eight minutes, as root)
#   make bench-names  many small files, directly and through Weir, on three homes, the quick form (at most eight minutes, as root)
#   make bench-sync   programs that sync, straight on ext4, without syncs, through Weir, and in a session (as root)
#   make bench-bucket a bucket behind a network, through Weir, s3fs and rclone (as root)
#   make bench-advise  what 'weir advise' predicts for nine programs, beside what is measured (three minutes, as root)
#   make bench-nbw  NBW's evaluation on emulated disks, the quick form (at most eight minutes, as root)
#   make bench-paper  the same in the paper's form (an hour and more), and the report of it in docs
#   make lint       formatting, clippy, the documentation's links, dependencies, and checks of the repository itself
#   make install    the weir command, the library of 'weir run', the C library and its header, man pages and completions below PREFIX
#                   (/usr/local), and mount(8)'s helper in SBINDIR (/sbin); DESTDIR respected
#   make package    Debian packages (weir, weir-bucket) and a tarball of the release build, in target/package
#   make setup      only the set-up: system packages, Rust components, test suites

SHELL := /bin/bash
CARGO ?= cargo
PREFIX ?= /usr/local
# mount(8) looks for its helpers in /sbin, wherever the command itself is.
SBINDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/sbin,$(PREFIX)/sbin)
BENCH_DIR ?= target/bench
DEMO_DIR ?= target/demo
WEIR := target/release/weir
BUCKET := target/release/weir-bucket
PRELOAD := target/release/libweir_preload.so
LIBRARY := target/release/libweir.a
BENCH := target/release/weir-bench

NBW_JSON ?= $(BENCH_DIR)/nbw.json

.PHONY: all build checked setup setup-run setup-bench setup-test demo test test-all test-long coverage crash-test crash-test-bucket crash-test-external crash-test-names miri fuzz bench bench-lane bench-names bench-sync bench-bucket bench-advise bench-nbw bench-paper lint install uninstall package clean

all: build

build:
	$(CARGO) build --release -p weir -p weir-preload -p weir-bench -p weir-bucket

# The C library of weir.h. -fPIC: for programs of any kind, and libraries.
$(LIBRARY): library/weir.c library/control.c library/weir.h
	mkdir -p $(@D)
	$(CC) -O2 -g -fPIC -pthread -Wall -Wextra -c -o $(@:.a=.o) library/weir.c
	$(CC) -O2 -g -fPIC -pthread -Wall -Wextra -c -o $(@:.a=-control.o) library/control.c
	rm -f $@
	$(AR) rcs $@ $(@:.a=.o) $(@:.a=-control.o)

# The profile of all tests, as tests/run builds it.
checked:
	$(CARGO) build --workspace --lib --bins --examples --tests --locked --profile checked

setup:
	scripts/setup

setup-run:
	scripts/setup run

setup-bench:
	scripts/setup bench

setup-test:
	scripts/setup test

demo: setup-run build
	$(BENCH) demo --weir $(WEIR) --dir $(DEMO_DIR)

test: setup-test
	tests/run --workspace --short

test-all: setup
	tests/run --workspace --all

test-long: setup
	tests/run --workspace --long
	$(CARGO) test --profile checked -p weir-bench whole_traces -- --ignored

coverage: setup-test
	scripts/coverage

# At least 20,000 crashes in the simulator, 248 power cuts of an emulated disk (ext4 and xfs), and 10,000 kills of programs under weir run.
crash-test: setup checked
	$(CARGO) run --profile checked -p weir-sim --bin weir-sim -- --cuts 0..60
	tests/run --long redo-log-cut promises-cuts lane-kill

# The loads of external synchrony, each killed and its power cut, with an observer outside: 145 of each for each of seven loads.
crash-test-external: setup checked
	WEIR_ROUNDS=145 tests/run --long "external script" "external pipe" "external keys" "external redis" "external postgres" "external mariadb" "external status"

crash-test-bucket: setup checked
	tests/run --long "bucket-faults kills"

# No set-up: it needs neither root nor mounts.
crash-test-names:
	$(CARGO) run --profile checked -p weir-sim --bin weir-sim -- names --cuts 200000 --keep-going
	$(CARGO) run --profile checked -p weir-sim --bin weir-sim -- names --order all --cuts 100000 --keep-going

miri:
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1; then \
	    MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=target/miri $(CARGO) +nightly miri test -p weir-lane --lib; \
	else \
	    echo "miri: skipped; it needs: rustup toolchain install nightly --component miri"; \
	fi

fuzz: setup
	tests/run --long fuzz

bench: setup-run build
	mkdir -p $(BENCH_DIR)
	$(BENCH) run all --weir $(WEIR) --dir $(BENCH_DIR) --json $(BENCH_DIR)/results.json

bench-lane: setup-bench build
	mkdir -p $(BENCH_DIR)
	$(BENCH) run lane --quick --weir $(WEIR) --dir $(BENCH_DIR) --json $(BENCH_DIR)/lane.json

bench-names: setup-bench build
	mkdir -p $(BENCH_DIR)
	$(BENCH) run names --quick --weir $(WEIR) --dir $(BENCH_DIR) --json $(BENCH_DIR)/names.json

bench-sync: setup-bench build
	mkdir -p $(BENCH_DIR)
	$(BENCH) run sync --quick --weir $(WEIR) --dir $(BENCH_DIR) --json $(BENCH_DIR)/sync.json

bench-bucket: setup-bench build
	mkdir -p $(BENCH_DIR)
	$(BENCH) run bucket --quick --weir $(WEIR) --dir $(BENCH_DIR) --json $(BENCH_DIR)/bucket.json

bench-advise: setup-test build
	WEIR=$(abspath $(WEIR)) tests/run --long --jobs 1 "advise predictions"

bench-nbw: setup-bench build
	mkdir -p $(BENCH_DIR)
	$(BENCH) run nbw --quick --weir $(WEIR) --dir $(BENCH_DIR) --json $(NBW_JSON)

# Goes on where it was stopped. The report makes docs/results/nbw.md's tables, the plots and a copy of the results.
bench-paper: setup-bench build
	mkdir -p $(BENCH_DIR)
	$(BENCH) run nbw --paper --weir $(WEIR) --dir $(BENCH_DIR) --json $(BENCH_DIR)/nbw-paper.json
	$(BENCH) report $(BENCH_DIR)/nbw-paper.json --out docs/results

lint:
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path instruments/fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --locked --profile checked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --profile checked
	scripts/check-repository
	scripts/check-dependencies --self-test
	scripts/check-dependencies
	scripts/check-circles --self-test
	scripts/check-circles

# The link below SBINDIR is what mount(8) runs for `SOURCE MOUNTPOINT fuse.weir OPTIONS` in /etc/fstab.
install: build $(LIBRARY)
	install -D -m 755 $(WEIR) $(DESTDIR)$(PREFIX)/bin/weir
	install -D -m 755 $(BUCKET) $(DESTDIR)$(PREFIX)/bin/weir-bucket
	install -D -m 755 $(PRELOAD) $(DESTDIR)$(PREFIX)/lib/weir/libweir_preload.so
	install -D -m 644 $(LIBRARY) $(DESTDIR)$(PREFIX)/lib/libweir.a
	install -D -m 644 library/weir.h $(DESTDIR)$(PREFIX)/include/weir.h
	mkdir -p $(DESTDIR)$(SBINDIR)
	ln -sf $(PREFIX)/bin/weir $(DESTDIR)$(SBINDIR)/mount.fuse.weir
	$(WEIR) documents target/documents
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 target/documents/man/*.1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 target/documents/man/*.8
	install -D -m 644 target/documents/completions/weir.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weir
	install -D -m 644 target/documents/completions/_weir $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weir
	install -D -m 644 target/documents/completions/weir.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weir.fish

package: setup-test
	$(CARGO) build --release --locked -p weir -p weir-preload -p weir-bucket
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --locked --target x86_64-unknown-linux-gnu -p weir
	scripts/package

uninstall:
	rm -f $(DESTDIR)$(SBINDIR)/mount.fuse.weir $(DESTDIR)$(PREFIX)/bin/weir $(DESTDIR)$(PREFIX)/bin/weir-bucket $(DESTDIR)$(PREFIX)/lib/weir/libweir_preload.so
	rm -f $(DESTDIR)$(PREFIX)/lib/libweir.a $(DESTDIR)$(PREFIX)/include/weir.h
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/weir.1 $(DESTDIR)$(PREFIX)/share/man/man1/weir-*.1 $(DESTDIR)$(PREFIX)/share/man/man8/mount.fuse.weir.8
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weir $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weir
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weir.fish
	rmdir $(DESTDIR)$(PREFIX)/lib/weir 2>/dev/null || true

clean:
	$(CARGO) clean
