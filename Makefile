# SPDX-License-Identifier: Apache-2.0
# For people. Each target does all that it needs, installation of Debian packages included; CMake does the building.
#     make study    build, then train a baseline and gated models and write a report
#     make test     build and run every test
BUILD ?= build/release
PYTHON ?=
OUTPUT ?= study-quick
JOBS ?= $(shell nproc)
SLUICE = $(BUILD)/sluice

.PHONY: all setup study test test-fast bench install clean

all: $(SLUICE)

setup:
	@tools/setup.sh

$(BUILD)/build.ninja: | setup
	cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release $(if $(PYTHON),-DSLUICE_PYTHON=$(PYTHON))

# Always asked: ninja knows what is out of date.
.PHONY: $(SLUICE)
$(SLUICE): setup $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS) --target sluice_program

study: $(SLUICE)
	$(SLUICE) study --output $(OUTPUT)

test: setup $(BUILD)/build.ninja
	$(if $(PYTHON),cmake -S . -B $(BUILD) -DSLUICE_PYTHON=$(PYTHON))
	cmake --build $(BUILD) -j $(JOBS)
	tools/check_includes.py
	ctest --test-dir $(BUILD) --output-on-failure -j 1

test-fast: setup $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure -L fast

# The tables of docs/speed-log.md: beside the peers of bench/requirements.txt that PYTHON has (hours; BENCH: options of compare.py),
# then growth with prompts up to LONGEST tokens.
MODELS ?= bench/models
LONGEST ?= 32768
bench: $(SLUICE)
	cmake --build $(BUILD) -j $(JOBS) --target test_kernels_attention
	$(SLUICE) bench kernels
	$(or $(PYTHON),python3) bench/compare.py --build $(BUILD) --models $(MODELS) $(BENCH)
	$(or $(PYTHON),python3) bench/growth.py --build $(BUILD) --folder $(MODELS)/growth --longest $(LONGEST)

install: $(SLUICE)
	cmake --install $(BUILD)

clean:
	rm -rf build
