# To be sourced: makes sure of what the other scripts need. Debian and Ubuntu; elsewhere it says what is missing.
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
export PATH="$HOME/.cargo/bin:$PATH"

# as_root COMMAND...: runs it as root, if that can be done without asking.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi
}

# apt_install PACKAGE...: installs Debian packages, quietly.
apt_install() {
    command -v apt-get >/dev/null || return 1
    as_root apt-get update -qq >/dev/null && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

command -v cc >/dev/null || apt_install gcc libc6-dev || echo "a C compiler is needed: see the README" >&2
# jemalloc is built by it, where its feature is on.
command -v make >/dev/null || apt_install make || echo "make is needed for the feature jemalloc" >&2
command -v cargo >/dev/null || apt_install rustup || echo "Rust is needed: see the README" >&2
