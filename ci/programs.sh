# Source this file for the programs that the other scripts run: the command and the examples, in the directory $programs, with $features,
# which are those of the tests, so that nothing is built twice. PROFILE=release for optimised ones; the default is `dev`, as in CI.
features=polyserve/tls,polyserve-cluster/etcd,polyserve-cluster/redis,polyserve-cluster/postgres,polyserve-cli/etcd,polyserve-examples/all
programs=${CARGO_TARGET_DIR:-target}/${PROFILE:-debug}

# Builds them.
build_programs() {
    local profile=${PROFILE:-dev}
    cargo build -q --profile "$profile" --workspace --bins --examples --features "$features"
}

# take_built TARGET [ours]: gives another target directory what the tests have built of the crates that are not of the workspace, and with
# `ours` of its libraries too. It needs no second build there, and little space. A build may be under way, so what says that a crate is
# complete is copied first.
take_built() {
    local from=$PWD/target/debug to=$1/debug
    [ -d "$from/.fingerprint" ] && [ "$(realpath -m "$to")" != "$from" ] || return 0
    mkdir -p "$to/deps"
    cp -a "$from/.fingerprint" "$to"
    cp -a "$from/build" "$to"
    find "$from/deps" -maxdepth 1 -type f ! -name '*polyserve*' \( -name '*.d' -o -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \) \
        -exec cp -alf -t "$to/deps" {} +
    [ "${2-}" != ours ] || find "$from/deps" -maxdepth 1 -type f -name 'libpolyserve*.r*' -exec cp -alf -t "$to/deps" {} +
}
