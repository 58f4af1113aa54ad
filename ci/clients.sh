#!/usr/bin/env bash
# Sends the requests of real clients over TLS, with the certificate verified, to a server of each kind: curl with HTTP/1.1 and 2, openssl
# with TLS 1.2 and 1.3 and resumption, Python, Node, Go, Java, and nginx in front with kept connections. Each client puts, gets, gets with a
# condition, removes, keeps its connection, and sends bodies at and above the limit of 1 MiB.
# A client that is not installed is reported as not run.
# ci/clients.sh [SERVER...]
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/session.sh
build_program
cargo build -q --profile "${PROFILE:-dev}" -p polyserve-examples --features http2 --example https_http2
http2_server=$(realpath "$programs/examples/https_http2")
clients=$(realpath ci/clients)
[ $# -gt 0 ] || set -- "${every_server[@]}"
certificate server
ca=$tmp/ca.pem

# entity BYTES: the JSON of an entity of this length.
entity() { printf '{"id":1,"description":"%s","value":1.5}' "$(head -c $(($1 - 37)) /dev/zero | tr '\0' x)"; }
entity 1048576 >"$tmp/fits" # 1 MiB
entity 1048577 >"$tmp/large"

fail() { echo "$server: $*" >&2; cat "$tmp/log" "$tmp/out" >&2 || true; exit 1; }
not_run() { echo "not run: $1 is not installed"; }

# handshakes: prints the number of TLS handshakes of the server.
handshakes() { curl -sS "$admin/metrics" | sed -n 's/^polyserve_tls_handshakes_total{.*} //p'; }

# answered STATUS ARGUMENTS...: one request of curl has this status.
answered() {
    local status=$1 got
    shift
    got=$(curl -sS --max-time 20 --cacert "$ca" -o "$tmp/body" -w '%{http_code}' "$@" 2>"$tmp/log") || true
    [ "$got" = "$status" ] || fail "curl: $got instead of $status: $*"
}

# with_curl URL VERSION [ARGUMENTS...]
with_curl() {
    local url=$1 version=$2 tag used
    shift 2
    answered 201 "$@" -X PUT -H 'Content-Type: application/json' -d '{"id":1,"description":"a","value":1.5}' "$url/"
    answered 200 "$@" -D "$tmp/head" "$url/1"
    tag=$(tr -d '\r' <"$tmp/head" | sed -n 's/^[Ee][Tt]ag: //p')
    [ -n "$tag" ] || fail "curl: no ETag"
    answered 304 "$@" -H "If-None-Match: $tag" "$url/1"
    answered 200 "$@" -X PUT -H 'Content-Type: application/json' --data-binary "@$tmp/fits" "$url/"
    answered 413 "$@" -X PUT -H 'Content-Type: application/json' --data-binary "@$tmp/large" "$url/"
    answered 204 "$@" -X DELETE "$url/1"
    # Two requests on one connection.
    used=$(curl -sS --max-time 20 --cacert "$ca" "$@" -o /dev/null -o /dev/null -w '%{http_version} %{num_connects}\n' "$url/1" "$url/1" | tr '\n' ' ')
    [ "$used" = "$version 1 $version 0 " ] || fail "curl: version and new connections of two requests: $used"
}

# with_openssl: both versions of TLS, and a resumed session of each.
with_openssl() {
    local version name again
    for version in tls1_2 tls1_3; do
        name=TLSv${version#tls} name=${name/_/.}
        for again in New Reused; do
            local session=(-sess_out "$tmp/session")
            [ $again = New ] || session=(-sess_in "$tmp/session")
            printf 'GET /1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' |
                timeout 20 openssl s_client -connect "${url#https://}" -CAfile "$ca" -verify_return_error "-$version" -alpn h2,http/1.1 -ign_eof \
                    "${session[@]}" >"$tmp/log" 2>&1 || fail "openssl -$version"
            grep -q "^$again, $name," "$tmp/log" && grep -q 'HTTP/1.1 404' "$tmp/log" && grep -q 'ALPN protocol: http/1.1' "$tmp/log" ||
                fail "openssl -$version: not $again, $name"
        done
    done
}

# kept NAME COMMAND...: runs a client, which sends at least eight requests over at most three connections: a refused body ends one.
kept() {
    local name=$1 before after
    shift
    before=$(handshakes)
    timeout 60 "$@" >"$tmp/log" 2>&1 || fail "$name"
    grep '^not run' "$tmp/log" || true
    after=$(handshakes)
    [ $((after - before)) -le 3 ] || fail "$name: $((after - before)) handshakes"
}

# through_nginx: a proxy that verifies the server, and keeps its connections.
through_nginx() {
    local port before
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    cat >"$tmp/nginx.conf" <<END
pid $tmp/nginx.pid;
daemon off;
events {}
http {
    access_log off;
    client_body_temp_path $tmp/bodies;
    proxy_temp_path $tmp/proxied;
    fastcgi_temp_path $tmp/fastcgi;
    uwsgi_temp_path $tmp/uwsgi;
    scgi_temp_path $tmp/scgi;
    client_max_body_size 4m;
    client_body_buffer_size 4m; # a worker of another user may not write files here
    upstream polyserve { server ${url#https://}; keepalive 4; }
    server {
        listen 127.0.0.1:$port ssl http2;
        ssl_certificate $tmp/cert.pem;
        ssl_certificate_key $tmp/key.pem;
        location / {
            proxy_pass https://polyserve;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host \$host;
            proxy_ssl_verify on;
            proxy_ssl_trusted_certificate $ca;
            proxy_ssl_name localhost;
            proxy_ssl_server_name on;
            proxy_ssl_protocols TLSv1.2 TLSv1.3;
        }
    }
}
END
    "$nginx" -e "$tmp/log" -p "$tmp" -c "$tmp/nginx.conf" >"$tmp/log" 2>&1 &
    other=$!
    for _ in $(seq 100); do curl -s -o /dev/null --cacert "$ca" "https://127.0.0.1:$port/1" && break || sleep 0.1; done
    before=$(handshakes)
    with_curl "https://127.0.0.1:$port" 2
    for _ in $(seq 10); do answered 404 "https://127.0.0.1:$port/1"; done
    [ $(($(handshakes) - before)) -le 3 ] || fail "nginx does not keep its connections: $(($(handshakes) - before)) handshakes"
    kill "$other"
    wait "$other" 2>/dev/null || true
    other=
}

nginx=$(PATH=$PATH:/usr/sbin command -v nginx || true)
! command -v go >/dev/null || (cd "$clients" && GO111MODULE=off CGO_ENABLED=0 go build -o "$tmp/client-go" client.go)
! command -v javac >/dev/null || javac -d "$tmp/java" "$clients/Client.java"
for server in "$@"; do
    start "$program" serve --server "$server" --repo sharded --etags on --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
        --tls-cert "$tmp/cert.pem" --tls-key "$tmp/key.pem"
    admin_address
    with_curl "$url" 1.1 --http1.1
    with_curl "$url" 1.1 --http2 # the server does not offer it
    with_openssl
    if command -v python3 >/dev/null; then kept Python python3 "$clients/client.py" "$url" "$ca"; else not_run Python; fi
    if command -v node >/dev/null; then kept Node node "$clients/client.js" "$url" "$ca"; else not_run Node; fi
    if [ -x "$tmp/client-go" ]; then kept Go "$tmp/client-go" "$url" "$ca"; else not_run Go; fi
    if [ -d "$tmp/java" ]; then kept Java java -XX:TieredStopAtLevel=1 -cp "$tmp/java" Client "$url" "$ca"; else not_run Java; fi
    if [ -n "$nginx" ]; then through_nginx; else not_run nginx; fi
    stop
    echo "$server: ok"
done

# HTTP/2 over TLS.
server=https_http2
start "$http2_server" "$tmp/cert.pem" "$tmp/key.pem"
if curl --version | grep -q HTTP2; then with_curl "$url" 2 --http2; else not_run "curl with HTTP/2"; fi
if [ -x "$tmp/client-go" ]; then timeout 60 "$tmp/client-go" "$url" "$ca" >"$tmp/log" 2>&1 || fail Go; fi
if [ -d "$tmp/java" ]; then timeout 60 java -cp "$tmp/java" Client "$url" "$ca" >"$tmp/log" 2>&1 || fail Java; fi
kill "$pid"
wait "$pid" 2>/dev/null || true
pid=
echo "$server: ok"
