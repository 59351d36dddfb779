# syntax=docker/dockerfile:1
# The `fencepost` binary alone, in an image whose user is not root. Builds librdkafka, zstd and jemalloc from source.

FROM rust:1.95.0-bookworm AS build
WORKDIR /src
COPY . .
# The caches outlive the build: what did not change is not compiled again.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin fencepost && cp target/release/fencepost /usr/local/bin/fencepost

FROM debian:bookworm-slim
# The directory is made here, so that a new volume mounted on it belongs to the user.
RUN useradd --system --uid 10001 --user-group --no-create-home fencepost \
    && install -d -o fencepost -g fencepost /var/lib/fencepost
COPY --from=build /usr/local/bin/fencepost /usr/local/bin/fencepost
COPY dev/container-health /usr/local/bin/container-health
USER 10001:10001
WORKDIR /var/lib/fencepost
VOLUME /var/lib/fencepost
ENV FENCEPOST_PIPELINE__CHECKPOINT_DIR=/var/lib/fencepost/checkpoint
# SIGTERM finishes the open window: in a second or two, or, while brokers or Postgres do not answer, within half a minute.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 CMD ["container-health"]
ENTRYPOINT ["fencepost"]
CMD ["up"]
