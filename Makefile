# SPDX-License-Identifier: MIT
PYTHON ?= python
CC ?= cc
BUILD ?= build/sanitize

STRICT = -std=gnu11 -g -O1 -Wall -Wextra -Wconversion -Wshadow -Werror -pthread
RUNTIME = $(wildcard csrc/runtime/*.c)
HEADERS = $(wildcard csrc/runtime/*.h csrc/runtime/stress/*.h)

# forks runs without ThreadSanitizer and AddressSanitizer: their own locks are not safe in the child of a threaded process.
SANITIZED = $(foreach s,thread address,$(foreach p,loops buffers allocator race tasks boxes corners steps windows kept,$(BUILD)/$(p)-$(s))) \
            $(foreach p,loops buffers allocator race tasks boxes corners steps windows kept forks,$(BUILD)/$(p)-undefined)

.SECONDARY:
.PHONY: help build test golden sanitize bench docs lint

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

build:  ## compile the extension modules in place
	$(PYTHON) setup.py -q build_ext --inplace

test:  ## run the tests
	$(PYTHON) -m pytest -q

golden:  ## rewrite the expected texts of the tests; look at the difference before you commit it
	$(PYTHON) -m pytest -q --update-golden

lint:  ## ruff and pyright
	$(PYTHON) -m ruff check .
	$(PYTHON) -m pyright --pythonpath $$($(PYTHON) -c 'import sys; print(sys.executable)')

sanitize: $(SANITIZED:=.ok)  ## the C library's stress programs under TSan, ASan and UBSan

bench:  ## compare with other libraries (needs the extra "bench")
	$(PYTHON) -m pto_jit.bench

docs:  ## build the documentation from the docstrings
	$(PYTHON) -m pto_jit.docs

FLAGS_thread = -fsanitize=thread
FLAGS_address = -fsanitize=address,undefined -fno-sanitize-recover=all
FLAGS_undefined = -fsanitize=undefined -fno-sanitize-recover=all

# the library once for each sanitizer, then the programs against it
$(BUILD)/%/library.a: $(RUNTIME) $(HEADERS)
	@mkdir -p $(@D)
	cd $(@D) && $(CC) $(STRICT) $(FLAGS_$*) -c $(abspath $(RUNTIME)) && ar rcs library.a *.o

define program
$(BUILD)/%-$(1): csrc/runtime/stress/%.c $(BUILD)/$(1)/library.a
	$(CC) $(STRICT) $(FLAGS_$(1)) $$^ -o $$@
endef
$(foreach s,thread address undefined,$(eval $(call program,$(s))))

%.ok: %
	$<
	@touch $@
