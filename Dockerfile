# The image of tailpost: `docker build -t tailpost .`
# The compiler's version is that of rust-toolchain.toml, which is not copied: rustup would want more components for it.
FROM rust:1.95.0-bookworm AS build
WORKDIR /build
COPY . .
# The caches keep crates and objects between builds; what is in them is not in the image, hence the copy.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked --bin tailpost && cp target/release/tailpost /tailpost

FROM debian:bookworm-slim
# libssl and zlib are librdkafka's; the certificates are for brokers and databases with public ones.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libssl3 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/tailpost --create-home tailpost
COPY --from=build /tailpost /usr/local/bin/tailpost
USER tailpost
WORKDIR /var/lib/tailpost
# Checkpoints are here: without a volume they go when the container goes.
VOLUME /var/lib/tailpost
EXPOSE 9095
# The image has no HTTP client, but bash can open a connection. /healthz tells if the process is alive; /readyz, which a
# broker's outage turns red, is not for restarts.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9095 && printf 'GET /healthz HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ code _ <&3 && [ \"$code\" = 200 ]"]
ENTRYPOINT ["tailpost"]
CMD ["run", "/etc/tailpost", "--state-dir", "/var/lib/tailpost", "--http", "0.0.0.0:9095"]
