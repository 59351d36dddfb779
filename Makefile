# Everything runs on real services without Docker; what a fresh Debian lacks is installed. Settings: dev/env.
.PHONY: up down test lint demo

up: ## start Postgres, Kafka and Redis for development
	dev/up

down: ## stop them; their data stays (dev/down --wipe removes it)
	dev/down

# The end-to-end tests start a stack of their own beside the developer's, and take turns (tests/harness/turn.rs).
test: ## all tests, on real services
	dev/install build kafka postgres redis
	cargo test --workspace

lint: ## formatting, clippy, dependency rules, shell scripts, container files
	dev/install build lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	if command -v cargo-deny >/dev/null; then cargo deny --log-level error check bans licenses sources; fi
	if command -v shellcheck >/dev/null; then shellcheck dev/up dev/down dev/env dev/install dev/demo dev/container-health dev/services/*.bash .ci/run; fi
	.stack/lint/bin/dclint --max-warnings 0 docker-compose.yml
	.stack/lint/bin/hadolint --failure-threshold info Dockerfile

demo: ## the whole of Fencepost for half a minute, ending with an audit
	dev/demo
