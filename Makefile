# `make help` lists what there is. Needed beforehand: Go and make; on Debian as
# root the rest is installed, elsewhere what is missing is said.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help

GO ?= go
PACKAGES ?= work# of which packages: a pattern of the go command; work is the whole workspace
RUN ?=#            of which tests: a regular expression
DURATION ?=#       of the random load and faults in `make soak`: such as 2h; half an hour unless it is set
ARGS ?=#           for `make demo`
BENCH_ARGS ?=#     for `make bench`: sections, then flags; -h lists them
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

MODULES := . examples/orders test bench
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

# One PostgreSQL server for all packages' tests, unless POSTRIDER_TEST_POSTGRES names one.
WITH = $(GO) run ./internal/pgtest/with --
REPORT = $(GO) run ./internal/testreport -skips test/skips.txt
TEST = $(GO) test -race $(if $(RUN),-run '$(RUN)')

.PHONY: help
help: ## This list
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

.PHONY: build
build: ## Static binaries in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/postrider ./examples/orders

.PHONY: demo
demo: ## The whole shop in one process; make demo ARGS="--orders 200 --exit"
	@$(GO) build -o bin/orders ./examples/orders
	@exec bin/orders demo $(ARGS)

.PHONY: test
test: check unit ## All checks and all tests, with the race detector, short sizes

.PHONY: unit
unit: tools ## The tests alone; make unit PACKAGES=./relay/... RUN=TestStop
	$(WITH) $(TEST) -timeout 30m $(PACKAGES)

.PHONY: check
check: format vet lint tidy alone ## All checks that are no tests

.PHONY: format
format: # that gofmt has nothing to change
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt -w would change:"; echo "$$out"; exit 1; fi

.PHONY: vet
vet: # what go vet knows
	$(GO) vet work

.PHONY: lint
lint: # what staticcheck knows
	$(GO) run $(STATICCHECK) $$($(GO) list work)

.PHONY: tidy
tidy: # that go mod tidy has nothing to change
	@failed=0; for m in $(MODULES); do \
		echo "go mod tidy -diff in $$m"; (cd $$m && GOWORK=off $(GO) mod tidy -diff) || failed=1; \
	done; exit $$failed

.PHONY: alone
alone: # that the product builds without the workspace, as its users get it
	GOWORK=off $(GO) build ./...
	GOWORK=off $(GO) vet ./...

.PHONY: soak
soak: tools ## The tests at full size, for hours; takes PACKAGES and RUN; DURATION=2h of random load and faults
	@mkdir -p .artifacts
	@echo "POSTRIDER_TEST_SIZE=full POSTRIDER_TEST_DURATION=$(DURATION) $(TEST) -count=1 -timeout 8h $(PACKAGES)   # $$(date -u +%FT%TZ), commit $(VERSION)" | tee .artifacts/soak.txt
	POSTRIDER_TEST_SIZE=full POSTRIDER_TEST_DURATION=$(DURATION) $(WITH) $(TEST) -count=1 -timeout 8h -json $(PACKAGES) | $(REPORT) -v | tee -a .artifacts/soak.txt

.PHONY: bench
bench: ## This project beside its peers, as Markdown; make bench BENCH_ARGS="drain --rounds 5"
	@$(GO) build -o bin/bench ./bench
	@bin/bench $(BENCH_ARGS)

.PHONY: microbench
microbench: ## Go's benchmarks; takes PACKAGES and BENCH
	$(WITH) $(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -timeout 2h $(PACKAGES)

.PHONY: audit
audit: ## Known vulnerabilities of what we use; needs the internet
	@failed=0; for m in $(MODULES); do (cd $$m && GOWORK=off $(GO) run $(GOVULNCHECK) ./...) || failed=1; done; exit $$failed

.PHONY: tools
tools: # what the tests need besides Go
	@scripts/tools.sh

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin .artifacts
