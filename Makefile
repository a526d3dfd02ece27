# The front door: installs what is missing, then calls CMake. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

BUILD ?= build
BUILD_TYPE ?= Release
CMAKE_FLAGS ?=
CORES := $(shell nproc 2>/dev/null || echo 1)
JOBS ?= $(CORES)
RANKS ?= 2
PYTHON ?= python3
PEER_FLAGS ?=
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60

# Open MPI binds one or two ranks to one core each unless told otherwise, refuses to start as root,
# and refuses more ranks than cores.
THREADS = $(shell echo $$(( $(CORES) / $(RANKS) > 0 ? $(CORES) / $(RANKS) : 1 )))
MPIRUN = OMP_NUM_THREADS=$(THREADS) mpirun -q -np $(RANKS) --bind-to none \
	$(if $(filter 0,$(shell id -u)),--allow-run-as-root) \
	$(if $(filter 1,$(shell echo $$(( $(RANKS) > $(CORES) )))),--oversubscribe)

# Debian package : a file or program that shows it is there (a word with a slash is looked up in the
# include folders, any other in PATH).
PACKAGES := g++:g++ cmake:cmake make:make pkg-config:pkg-config libdnnl-dev:oneapi/dnnl/dnnl.hpp \
	libopenmpi-dev:mpi.h/ openmpi-bin:mpirun \
	libboost-program-options1.81-dev:boost/program_options.hpp \
	libboost-test1.81-dev:boost/test/unit_test.hpp libboost-json1.81-dev:boost/json.hpp \
	libboost-iostreams1.81-dev:boost/iostreams/stream.hpp \
	libpcre2-dev:pcre2posix.h/ libutf8proc-dev:utf8proc.h/ zlib1g-dev:zlib.h/ libzstd-dev:zstd.h/ \
	libprotozero-dev:protozero/pbf_writer.hpp gnuplot-nox:gnuplot

.PHONY: help deps configure build install api-docs run test bench bench-peer interop asan fuzz format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile
	@echo "  variables: BUILD=$(BUILD) BUILD_TYPE=$(BUILD_TYPE) JOBS=$(JOBS) RANKS=$(RANKS) PYTHON=$(PYTHON) PREFIX=$(PREFIX) FUZZ_SECONDS=$(FUZZ_SECONDS) CMAKE_FLAGS=$(CMAKE_FLAGS)"

deps: ## install the missing packages (Debian and Ubuntu), or say what to install
	@missing=""; \
	for entry in $(PACKAGES); do \
	  package=$${entry%%:*}; probe=$${entry#*:}; \
	  if command -v dpkg-query >/dev/null; then \
	    dpkg-query -W -f='$${Status}' "$$package" 2>/dev/null | grep -q 'ok installed' && continue; \
	  else case "$$probe" in \
	    */*) echo "#include <$${probe%/}>" | $${CXX:-c++} -x c++ -std=c++20 -fsyntax-only \
	         $$(mpicxx --showme:compile 2>/dev/null || true) - >/dev/null 2>&1 && continue || true;; \
	    *) command -v "$$probe" >/dev/null && continue || true;; esac; \
	  fi; \
	  missing="$$missing $$package"; \
	done; \
	[ -z "$$missing" ] && exit 0; \
	if ! command -v apt-get >/dev/null; then \
	  echo "smelt needs what these Debian packages hold; please install them your system's way:$$missing" >&2; \
	  echo "(a C++20 compiler, CMake 3.20, oneDNN, Open MPI, Boost 1.75 or later with Program_options, Test, JSON" >&2; \
	  echo "and Iostreams, PCRE2, utf8proc, zlib, zstd, protozero; gnuplot for figures). Going on; CMake will name what it cannot find." >&2; \
	  exit 0; \
	fi; \
	sudo=""; \
	if [ "$$(id -u)" != 0 ]; then \
	  sudo="sudo -n"; \
	  if ! sudo -n true 2>/dev/null; then \
	    echo "packages are missing and need root; please run: sudo apt-get install$$missing" >&2; exit 1; \
	  fi; \
	fi; \
	apt="$$sudo env DEBIAN_FRONTEND=noninteractive apt-get -y -q"; \
	echo "installing:$$missing"; \
	known=yes; \
	for package in $$missing; do apt-cache show --no-all-versions "$$package" >/dev/null 2>&1 || known=no; done; \
	if [ $$known = no ]; then $$apt update; fi; \
	wanted=""; \
	for package in $$missing; do \
	  if ! apt-cache show --no-all-versions "$$package" >/dev/null 2>&1; then \
	    plain=$$(echo "$$package" | sed 's/1\.81-dev$$/-dev/'); \
	    if [ "$$plain" != "$$package" ]; then echo "no $$package here; taking $$plain"; package="$$plain"; fi; \
	  fi; \
	  wanted="$$wanted $$package"; \
	done; \
	$$apt install --no-install-recommends $$wanted || { $$apt update && $$apt install --no-install-recommends $$wanted; }

configure: deps
	@cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) $(CMAKE_FLAGS)

build: configure ## compile everything into build/ (programs in build/bin)
	@cmake --build $(BUILD) -j $(JOBS)

install: build ## install programs, libraries, headers, CMake package and pkg-config file under PREFIX
	@cmake --install $(BUILD) --prefix $(PREFIX)

api-docs: ## the public headers as HTML in build/api (needs doxygen); warnings are errors
	@command -v doxygen >/dev/null || { echo "api-docs: please install doxygen" >&2; exit 77; }
	@mkdir -p $(BUILD) && (cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $(BUILD)/api") | doxygen -
	@echo "$(BUILD)/api/html/index.html"

run: configure ## the first run: prepare a small corpus, train a Baseline and its SMELT, compare them
	@cmake --build $(BUILD) -j $(JOBS) --target smelt-prepare smelt-pretrain smelt-eval
	@BUILD="$(BUILD)" MPIRUN="$(MPIRUN)" bash apps/run_first.sh

test: build ## build, run all suites; the last line is "N passed, M failed"
	@$(call run_suites,$(BUILD))

bench: configure ## measure training steps against the machine's matrix rate, and parts of them (5 minutes)
	@cmake --build $(BUILD) -j $(JOBS) --target smelt-bench
	@$(BUILD)/bin/smelt-bench --out $(BUILD)/bench.json
	@for part in operations generation growth tokenizer; do \
	  echo; $(BUILD)/bin/smelt-bench $$part --out $(BUILD)/bench-$$part.json; done

bench-peer: ## the same step in PyTorch, in turn with ours (half an hour; PYTHON=one with torch)
	@command -v $(PYTHON) >/dev/null || { echo "bench-peer: no $(PYTHON); PYTHON=... names one" >&2; exit 77; }
	@$(PYTHON) tests/interop/bench_peer.py --check
	@$(MAKE) configure
	@cmake --build $(BUILD) -j $(JOBS) --target smelt-bench
	@$(PYTHON) tests/interop/bench_peer.py --bench $(BUILD)/bin/smelt-bench --out $(BUILD)/bench-peer.json $(PEER_FLAGS)

interop: configure ## our files against the programs of others (PYTHON=one with transformers)
	@cmake --build $(BUILD) -j $(JOBS) --target all tokenize_file
	@failed=0; for script in tests/interop/*_compare.py; do \
	  echo "== $$script"; code=0; $(PYTHON) $$script --build $(BUILD) || code=$$?; \
	  case $$code in 0) echo "ok $$script";; 77) echo "skipped $$script";; \
	    *) echo "FAILED $$script"; failed=1;; esac; \
	done; exit $$failed

asan: deps ## the suites under AddressSanitizer and UndefinedBehaviorSanitizer (build-asan/)
	@cmake -S . -B build-asan -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" \
	  -DSMELT_SANITIZE=address,undefined $(CMAKE_FLAGS)
	@cmake --build build-asan -j $(JOBS)
	@$(call run_suites,build-asan)

fuzz: ## run every fuzz target for FUZZ_SECONDS under libFuzzer and sanitizers (needs Clang; build-fuzz/)
	@$(MAKE) deps PACKAGES="$(PACKAGES) clang:clang++ libomp-dev:omp.h/"
	@cmake -S . -B build-fuzz -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" -DSMELT_FUZZ=ON \
	  -DSMELT_SANITIZE=fuzzer-no-link,address,undefined $(CMAKE_FLAGS)
	@cmake --build build-fuzz -j $(JOBS) --target fuzz_programs
	@printf '%s\n' build-fuzz/tests/fuzz_* | xargs -P $(JOBS) -I {} bash tests/fuzz/run.sh {} $(FUZZ_SECONDS)

format: ## clang-format all C++ sources in place
	@git ls-files '*.h' '*.cpp' '*.cu' | xargs clang-format -i

clean: ## remove the build folders
	rm -rf build build-asan build-fuzz

# Runs ctest in folder $(1); its log is reduced to one line that counts Boost test cases.
define run_suites
ctest --test-dir $(1) --output-on-failure --no-tests=error || true; \
awk -f tests/summary.awk $(1)/Testing/Temporary/LastTest.log
endef
