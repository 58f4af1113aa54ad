# Source this file. It installs the tools that the other scripts need, on Debian and Ubuntu. On other systems it reports
# the missing ones.
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
export PATH="$HOME/.cargo/bin:$PATH"

# as_root COMMAND...: runs the command as root, if this needs no password.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi
}

# apt_install PACKAGE...: installs Debian packages quietly. Waits for another apt, such as that of a machine that has just started.
apt_install() {
    command -v apt-get >/dev/null || return 1
    local apt=(apt-get -qq -o DPkg::Lock::Timeout=300)
    as_root "${apt[@]}" update >/dev/null &&
        as_root env DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y "$@" >/dev/null
}

command -v cc >/dev/null || apt_install gcc libc6-dev || echo "a C compiler is needed: see the README" >&2
# The build of jemalloc needs make.
command -v make >/dev/null || apt_install make || echo "make is needed for the feature jemalloc" >&2
# The build of the etcd client needs protoc.
{ command -v protoc >/dev/null && [ -e /usr/include/google/protobuf/descriptor.proto ]; } ||
    apt_install protobuf-compiler libprotobuf-dev || echo "protoc is needed for the feature etcd" >&2
command -v python3 >/dev/null || apt_install python3 || echo "python3 is needed for the tests" >&2
command -v cargo >/dev/null || apt_install rustup || echo "Rust is needed: see the README" >&2
