# Source this file. It has functions for servers that print their address, for certificates, and for texts with curl requests and their
# answers. The texts have the address 127.0.0.1:8001, and the servers listen on a free port. At the end of the script, the directory $tmp is
# removed, and the server $pid and the process $other are ended.
. ci/setup.sh
. ci/programs.sh
command -v curl >/dev/null || apt_install curl || { echo "curl is needed" >&2; exit 1; }
tmp=$(mktemp -d)
pid= url= other=
trap 'for p in $other $pid; do kill "$p" 2>/dev/null || true; done; rm -rf "$tmp"' EXIT

# build_program: builds the command, unless PROGRAM is one. Sets $program, and $every_server: a server of each kind that it has, over the first
# of its executors.
build_program() {
    [ -n "${PROGRAM-}" ] || build_programs
    program=$(realpath "${PROGRAM:-$programs/polyserve}")
    every_server=($("$program" list --json | python3 -c '
import json, sys

kinds = {}
for server in json.load(sys.stdin)["servers"]:
    kinds.setdefault(server["name"].split("/")[0], server["name"])
print(*kinds.values())'))
    [ ${#every_server[@]} -gt 0 ] || { echo "the command lists no server" >&2; exit 1; }
}

# certificate NAME: makes $tmp/cert.pem and $tmp/key.pem, of an authority that the first call makes: $tmp/ca.pem.
certificate() {
    local new=(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2)
    command -v openssl >/dev/null || apt_install openssl
    [ -e "$tmp/ca.pem" ] || "${new[@]}" -subj /CN=authority -keyout "$tmp/ca-key.pem" -out "$tmp/ca.pem" 2>/dev/null
    "${new[@]}" -CA "$tmp/ca.pem" -CAkey "$tmp/ca-key.pem" -subj "/CN=$1" -addext basicConstraints=critical,CA:FALSE \
        -addext subjectAltName=IP:127.0.0.1,DNS:localhost -keyout "$tmp/key.pem" -out "$tmp/cert.pem" 2>/dev/null
}

# start COMMAND...: starts a server in the background, and waits until its address is in $tmp/out. Sets $pid and $url.
start() {
    : >"$tmp/out" # the child opens it later, and until then it has the address of the server before
    "$@" >"$tmp/out" 2>&1 &
    pid=$! url=
    for _ in $(seq 600); do
        url=$(grep -oEm1 'https?://127\.0\.0\.1:[0-9]+' "$tmp/out" || true)
        [ -z "$url" ] || return 0
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "it prints no address" >&2
    return 1
}

# admin_address: waits until the server has printed its admin address, and sets $admin.
admin_address() {
    for _ in $(seq 100); do
        admin=$(sed -n 's/^admin on //p' "$tmp/out")
        [ -z "$admin" ] || return 0
        sleep 0.1
    done
    echo "it prints no admin address" >&2
    return 1
}

# stop: ends the server if it runs. The server must drain. A background job of a script ignores SIGINT.
stop() {
    local stopped=$pid
    [ -n "$stopped" ] || return 0
    pid=
    kill -TERM "$stopped"
    wait "$stopped" || { echo "it fails after SIGTERM" >&2; return 1; }
}

# plain: removes blank lines, the date and the port, which differ between runs.
plain() { tr -d '\r' | sed -E '/^[Dd]ate: /d; /^$/d; s/127\.0\.0\.1:[0-9]+/127.0.0.1:8001/g'; }

# requests FILE: sends the requests of a text to the server: the lines that begin with `$ curl `. The answers must be
# the lines that follow.
requests() {
    local line command=
    : >"$tmp/expected"; : >"$tmp/answers"
    while IFS= read -r line; do
        case $line in
            '$ curl '*)
                printf '%s\n' "$line" | tee -a "$tmp/expected" >>"$tmp/answers"
                command=${line#\$ curl }
                eval "curl -sS --max-time 20 ${command//http:\/\/127.0.0.1:8001/$url}" >>"$tmp/answers" 2>&1 || true
                echo >>"$tmp/answers" # an answer may end without a line break
                ;;
            '$ '*) command= ;;
            *) [ -z "$command" ] || printf '%s\n' "$line" >>"$tmp/expected" ;;
        esac
    done <"$1"
    diff -u <(plain <"$tmp/expected") <(plain <"$tmp/answers") || { echo "the answers are not those of the text" >&2; return 1; }
}
