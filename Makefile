# Airlock. `make demo` shows it, `make test` proves it. Both install what is missing, both say each privileged command first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:

GO       ?= go
GOARCH   ?= $(shell $(GO) env GOARCH)
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE     ?= $(shell git log -1 --format=%cI 2>/dev/null)
LDFLAGS  := -s -w -X main.buildVersion=$(VERSION) -X main.buildCommit=$(COMMIT) -X main.buildDate=$(DATE)
GUEST    := internal/sandbox/guest/bin/guest_linux_$(GOARCH)
PROBE    := internal/sandbox/attack/bin/probe_linux_$(GOARCH)
LINT     := $(GO) tool -modfile=tools/go.mod golangci-lint

export CGO_ENABLED ?= 0

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## install what is missing, build, edit real documents with the scripted model, results in ./airlock-demo
	@scripts/demo.sh

.PHONY: test
test: ## set up, lint and run every test (root or sudo -n; about 25 minutes from bare)
	@scripts/test.sh --setup

.PHONY: check
check: ## the same as test, without the set-up
	@scripts/test.sh

.PHONY: build
build: guest ## build bin/airlock with the guest inside
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/airlock ./cmd/airlock

.PHONY: guest
guest: ## build the programs that run inside a sandbox: the guest, and the one that attacks
	GOOS=linux GOARCH=$(GOARCH) $(GO) build -ldflags '-s -w' -o $(GUEST) ./cmd/airlock-guest
	GOOS=linux GOARCH=$(GOARCH) $(GO) build -trimpath -ldflags '-s -w' -o $(PROBE) ./internal/sandbox/attack/probe

RUNSC_VERSION := $(shell awk '$$1 == "gvisor.dev/gvisor" {print $$2}' tools/runsc/go.mod)

.PHONY: runsc
runsc: bin/runsc ## build the pinned gVisor, bin/runsc, for sandboxes with a kernel of their own

bin/runsc: tools/runsc/go.mod tools/runsc/go.sum
	cd tools/runsc && GOOS=linux GOARCH=$(GOARCH) $(GO) build -mod=readonly -trimpath \
	  -ldflags '-s -w -X gvisor.dev/gvisor/runsc/version.version=$(RUNSC_VERSION)' -o ../../bin/runsc gvisor.dev/gvisor/runsc

.PHONY: lint
lint: ## golangci-lint, with the version of tools/go.mod
	$(LINT) run

.PHONY: fmt
fmt: ## format as the linter wants it
	$(LINT) fmt

.PHONY: deps
deps: ## refresh the golden list of linked modules
	$(GO) test -count=1 ./internal -run TestLinkedModulesAreTheGoldenList -update

.PHONY: bench
bench: build runsc ## print the table of budgets, write bench/results/latest.json
	scripts/asroot.sh $(GO) run ./bench

SOAKFLAGS ?=
.PHONY: soak
soak: build ## half an hour of everything that goes wrong; a dated report in bench/results
	$(GO) build -o bin/soak ./bench/soak
	scripts/asroot.sh unshare --mount --propagation private bin/soak $(SOAKFLAGS)

.PHONY: test-v2
test-v2: ## boot a Debian kernel with cgroup v2 alone in qemu and run the tests of limits there (15 minutes at most)
	@scripts/test-v2.sh

.PHONY: mutants
mutants: guest ## break one rule per case and run the test that must notice; CASES="22 59" for some of them
	@scripts/mutants.sh $(CASES)

FUZZTIME ?= 20s
.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: ci-clean
ci-clean: ## run .ci/run on a clean clone in a fresh Debian chroot
	@scripts/ci-clean.sh

.PHONY: setup
setup: ## install the packages the tests need
	@scripts/setup.sh test

.PHONY: clean
clean: ## remove what the build made
	rm -rf bin airlock-demo node_modules e2e/ts/node_modules npm/node_modules npm/dist npm/.build
	rm -f internal/sandbox/guest/bin/guest_linux_* internal/sandbox/attack/bin/probe_linux_*
