#!/usr/bin/env bash
# Builds a rung of the ladder: build.sh TARGET BINARY
# build.sh --check tests that every patch applies.
# The name of the directory TARGET has the settings, joined by +: lto+jemalloc+pipeline-flush. `base` has none: cargo's release
# profile. Compiler flags of the environment are not used. ../contestants.toml has the rungs.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)

# The dependency that a patch changes; nothing for our sources.
dependency() {
    case $1 in
        waker-array) echo tokio ;;
        header-hash) echo http ;;
        clock-reads) echo hyper ;;
        listing-pipeline-flush) echo warp ;;
    esac
}

# source_of CRATE MANIFEST: the source of a dependency in the version of the lock file.
source_of() {
    local found
    found=$(cargo metadata --locked --all-features --format-version=1 --manifest-path "$2" |
        grep -o "\"manifest_path\":\"[^\"]*/$1-[0-9][^/\"]*/Cargo.toml\"" | sort -u | cut -d'"' -f4)
    [ -f "$found" ] || { echo "there is no source of one version of $1: $found" >&2; return 1; }
    dirname "$found"
}

# apply PATCH DIRECTORY [--check]. In a repository, git would take the paths as relative to its root.
apply() {
    local file=$root/benches/ladder/patches/$1.patch
    (cd "$2" && GIT_CEILING_DIRECTORIES=$(dirname "$2") git apply ${3:-} "$file") ||
        { echo "patches/$1.patch does not apply to $2" >&2; return 1; }
}

if [ "$1" = --check ]; then
    # The workspace has the same versions of the dependencies, and their sources. warp is in the package of the listings alone.
    for file in patches/*.patch; do
        patch=$(basename "$file" .patch)
        crate=$(dependency "$patch")
        source=$root
        case $crate in
            '') ;;
            warp) source=$(source_of warp "$root/benches/twins/Cargo.toml") ;;
            *) source=$(source_of "$crate" "$root/Cargo.toml") ;;
        esac
        apply "$patch" "$source" --check
    done
    exit
fi

target=$1 binary=$2
lto=false units=16 flags=() patches=()
# The listing is a twin, and has no feature of its own.
case $binary in
    welcome) package=benches/twins features= ;;
    *) package=benches/ladder features=$binary ;;
esac
cd "$root/$package"
pipeline_flush= date_cache=
IFS=+ read -ra words <<<"$(basename "$target")"
for word in "${words[@]}"; do
    case $word in
        base) ;;
        thin-lto) lto='"thin"' ;;
        lto) lto='"fat"' ;;
        jemalloc | mimalloc) features+=,$word ;;
        codegen-units) units=1 ;;
        target-cpu) flags+=(-Ctarget-cpu=native) ;;
        pipeline-flush) pipeline_flush=1 ;;
        date-cache) date_cache=1 ;;
        waker-array | header-hash | clock-reads) patches+=("$word") ;;
        *) echo "there is no setting $word" >&2; exit 2 ;;
    esac
done
# Our servers without an optimisation are a patch of our sources. `warp` has flags for these. The server of warp, which the listing
# uses, has no such setting.
if [ "$binary" = serve ]; then
    [ -n "$date_cache" ] || patches=(without-date-cache "${patches[@]}")
    [ -n "$pipeline_flush" ] || patches=(without-pipeline-flush "${patches[@]}")
elif [ -n "$pipeline_flush" ]; then
    patches=(listing-pipeline-flush "${patches[@]}")
fi

locked=(--locked) arguments=()
if [ ${#patches[@]} -gt 0 ]; then
    name=$(IFS=+ && echo "${patches[*]}")
    copy=$root/target/ladder/patched/$name
    # Of the same sources, the copy stays as it is, so that cargo does not build it again.
    sources=$(cd "$root" && find Cargo.toml crates benches/ladder benches/twins -name target -prune -o -type f -print0 | sort -z |
        xargs -0 sha256sum | sha256sum)
    if [ "$(cat "$copy.sources" 2>/dev/null)" != "$sources" ]; then
        rm -rf "$copy" "$copy.sources"
        mkdir -p "$copy/benches"
        cp -a "$root/Cargo.toml" "$root/crates" "$copy/"
        cp -a "$root/benches/ladder" "$root/benches/twins" "$copy/benches/"
        for patch in "${patches[@]}"; do
            crate=$(dependency "$patch")
            if [ -z "$crate" ]; then apply "$patch" "$copy"; continue; fi
            source=$(source_of "$crate" Cargo.toml)
            cp -a "$source" "$copy/$crate"
            apply "$patch" "$copy/$crate"
        done
        echo "$sources" >"$copy.sources"
    fi
    for patch in "${patches[@]}"; do
        crate=$(dependency "$patch")
        [ -n "$crate" ] || continue
        # The lock file changes, and code of the dependency may be unused.
        locked=()
        arguments+=(--config "patch.crates-io.$crate.path=\"$copy/$crate\"")
        flags+=(--cap-lints=allow)
    done
    cd "$copy/$package"
fi
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]-}") exec cargo build --color=never --release "${locked[@]}" "${arguments[@]}" \
    --target-dir "$target" --bin "$binary" --features "$features" \
    --config "profile.release.lto=$lto" --config "profile.release.codegen-units=$units"
