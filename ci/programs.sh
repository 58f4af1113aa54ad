# Source this file for the programs that the other scripts run: the command and the examples, in the directory $programs, with $features,
# which are those of the tests, so that nothing is built twice. PROFILE=release for optimised ones; the default is `dev`, as in CI.
features=polyserve/tls,polyserve-cluster/etcd,polyserve-cluster/redis,polyserve-cluster/postgres,polyserve-cli/etcd,polyserve-examples/all
programs=${CARGO_TARGET_DIR:-target}/${PROFILE:-debug}

# Builds them.
build_programs() {
    local profile=${PROFILE:-dev}
    cargo build -q --profile "$profile" --workspace --bins --examples --features "$features"
}
