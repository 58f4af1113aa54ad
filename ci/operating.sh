#!/usr/bin/env bash
# Runs the configurations of docs/OPERATING.md: a server scraped by Prometheus, behind nginx and behind Caddy, with TLS and a user; a server
# with a configuration file that hands over; one with TLS of its own; one with tokens; the steps from the sources to a server; and the units
# of systemd.
# A program that cannot be installed is reported as not run.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/session.sh
build_program
command -v openssl >/dev/null || apt_install openssl

# block FILE: prints the block of the page with this file name.
block() { awk -v head="file=$1" '/^```/ { inside = index($0, head); next } inside' docs/OPERATING.md; }

# free_port: prints a port that was free a moment ago. The kernel itself assigns none above 60999.
free_port() {
    python3 -c '
import random, socket

while True:
    port = random.randrange(61000, 65535)
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            print(port)
            break
'
}

# answered STATUS ARGUMENTS...: sends a request, and fails unless the answer has the status.
answered() {
    local status=$1 got
    shift
    got=$(curl -sSk --max-time 20 -o "$tmp/body" -w '%{http_code}' "$@") || true
    [ "$got" = "$status" ] || { echo "$got instead of $status: $*" >&2; cat "$tmp/body" "$tmp/proxy.log" >&2; exit 1; }
}

# logged TARGET: prints the client that the access log has for a target.
logged() {
    local peer
    for _ in $(seq 100); do
        peer=$(sed -n "s|.*\"peer\":\"\([^\"]*\)\".*\"target\":\"$1\".*|\1|p" "$tmp/access.log")
        [ -z "$peer" ] || break
        sleep 0.1
    done
    echo "$peer"
}

# Another client than the proxy, and fields by which it claims to be a third one.
invented=(--interface 127.0.0.2 -H 'X-Forwarded-For: 203.0.113.9' -H 'Forwarded: for=203.0.113.9')

# through NAME PORT COMMAND...: starts a proxy on a port, and sends requests through it.
through() {
    local name=$1 url=https://127.0.0.1:$2
    shift 2
    (cd "$tmp" && exec "$@") >"$tmp/proxy.log" 2>&1 &
    other=$!
    for _ in $(seq 100); do curl -sk -o /dev/null "$url" && break || sleep 0.1; done
    answered 401 "$url/1"
    answered 201 -u alice:secret -X PUT "$url/" -d "{\"id\":$RANDOM,\"description\":\"$name\",\"value\":1.5}"
    answered 404 -u alice:secret "$url/-1"
    for _ in $(seq 20); do answered 404 -u alice:secret "$url/-1"; done
    open=$(curl -sS "$admin/metrics" | sed -n 's/^http_server_open_connections{.*} //p')
    [ "$open" -ge 1 ] && [ "$open" -le 4 ] || { echo "$name keeps $open connections" >&2; exit 1; }
    answered 404 -u alice:secret "${invented[@]}" "$url/-2?$name"
    peer=$(logged "/-2?$name")
    [ "$peer" = 127.0.0.2:0 ] || { echo "through $name the log has $peer instead of the client 127.0.0.2" >&2; exit 1; }
    kill "$other"
    wait "$other" 2>/dev/null || true
    other=
    echo "$name: ok"
}

openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$tmp/key.pem" -out "$tmp/cert.pem" 2>/dev/null
printf 'alice:%s\n' "$(openssl passwd -apr1 secret)" >"$tmp/users"
chmod 755 "$tmp" && chmod 644 "$tmp"/*
start "$program" serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --trusted-proxies 127.0.0.1 --access-log "$tmp/access.log"
admin_address
server=${url#http://}
answered 404 "${invented[@]}" "$url/-2?direct"
case $(logged '/-2?direct') in 127.0.0.2:*) ;; *) echo "a client that is no proxy names another one: $(logged '/-2?direct')" >&2; exit 1 ;; esac

prometheus=$(command -v prometheus || { apt_install --no-install-recommends prometheus && command -v prometheus; } || true)
if [ -x "$prometheus" ]; then
    port=$(free_port)
    curl -sS "$url/1" >"$tmp/body"
    { echo 'global: { scrape_interval: 1s }'; block prometheus.yml | sed "s|127\.0\.0\.1:9001|${admin#http://}|"; } >"$tmp/prometheus.yml"
    "$prometheus" --config.file="$tmp/prometheus.yml" --storage.tsdb.path="$tmp/tsdb" --web.listen-address="127.0.0.1:$port" >"$tmp/proxy.log" 2>&1 &
    other=$!
    scraped() {
        curl -sS "http://127.0.0.1:$port/api/v1/query" --data-urlencode "query=$1" 2>/dev/null | grep -qE '"value":\[[0-9.]+,"[1-9]'
    }
    for name in http_server_request_duration_seconds_count polyserve_answers_total 'up{job="polyserve"}'; do
        for _ in $(seq 200); do ! scraped "$name" || break; sleep 0.1; done
        scraped "$name" || { echo "Prometheus has no $name" >&2; cat "$tmp/proxy.log" >&2; exit 1; }
    done
    kill "$other"
    wait "$other" 2>/dev/null || true
    other=
    # Its linter reads the older format, and Prometheus itself has read OpenMetrics.
    curl -sS "$admin/metrics" >"$tmp/metrics"
    "$(dirname "$prometheus")/promtool" check metrics <"$tmp/metrics" || { cat "$tmp/metrics" >&2; exit 1; }
    block alarms.yml >"$tmp/alarms.yml"
    "$(dirname "$prometheus")/promtool" check rules "$tmp/alarms.yml"
    # Each metric that an alarm names is in the table.
    for name in $(grep -oE '(polyserve|http_server|db_client)_[a-z_]+' "$tmp/alarms.yml" | sed -E 's/_(bucket|count)$//' | sort -u); do
        grep -q "^| \`$name\`" docs/OPERATING.md || { echo "no metric of the table is called $name" >&2; exit 1; }
    done
    curl -sS -o "$tmp/metrics" -w '%{content_type}' -H 'Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1' "$admin/metrics" |
        grep -q '^application/openmetrics-text; version=1.0.0' || { cat "$tmp/metrics" >&2; exit 1; }
    [ "$(tail -n 1 "$tmp/metrics")" = '# EOF' ] || { cat "$tmp/metrics" >&2; exit 1; }
    echo "Prometheus: ok"
else
    echo "Prometheus: not run: it cannot be installed"
fi
nginx=$(PATH=$PATH:/usr/sbin command -v nginx || { apt_install --no-install-recommends nginx-light && echo /usr/sbin/nginx; } || true)
if [ -x "$nginx" ]; then
    port=$(free_port)
    block nginx.conf | sed "s/127\.0\.0\.1:8001/$server/; s/127\.0\.0\.1:8443/127.0.0.1:$port/" >"$tmp/nginx.conf"
    through nginx "$port" "$nginx" -p "$tmp" -c "$tmp/nginx.conf" -e "$tmp/proxy.log" -g "daemon off; pid $tmp/nginx.pid;"
else
    echo "nginx: not run: it cannot be installed"
fi
caddy=$(command -v caddy || { apt_install --no-install-recommends caddy && command -v caddy; } || true)
if [ -x "$caddy" ]; then
    port=$(free_port)
    hash=$("$caddy" hash-password --plaintext secret)
    block Caddyfile | sed "s/127\.0\.0\.1:8001/$server/; s/127\.0\.0\.1:8444/127.0.0.1:$port/; s|HASH|$hash|" >"$tmp/Caddyfile"
    HOME=$tmp through Caddy "$port" "$caddy" run --config "$tmp/Caddyfile"
else
    echo "Caddy: not run: it cannot be installed"
fi
stop

# `Request::peer`, as a service sees it.
if [ -x "$nginx" ] && [ -x "$programs/examples/custom_service" ]; then
    TCP_ADDRESS=127.0.0.1:0 POLYSERVE_TRUSTED_PROXIES=127.0.0.1 start "$(realpath "$programs/examples/custom_service")"
    direct=$url port=$(free_port)
    block nginx.conf | sed "s/127\.0\.0\.1:8001/${url#http://}/; s/127\.0\.0\.1:8443/127.0.0.1:$port/" >"$tmp/nginx.conf"
    "$nginx" -p "$tmp" -c "$tmp/nginx.conf" -e "$tmp/proxy.log" -g "daemon off; pid $tmp/nginx.pid;" >"$tmp/proxy.log" 2>&1 &
    other=$!
    for _ in $(seq 100); do curl -sk -o /dev/null "https://127.0.0.1:$port" && break || sleep 0.1; done
    for address in "$direct" "https://127.0.0.1:$port"; do
        answered 200 -u alice:secret "${invented[@]}" "$address/hello?client"
        grep -qx 'Hello, client at 127.0.0.2!' "$tmp/body" || { echo "a service behind $address sees another client" >&2; cat "$tmp/body" >&2; exit 1; }
    done
    kill "$other"
    wait "$other" 2>/dev/null || true
    other=
    stop
    echo "the client behind nginx: ok"
fi

# The configuration file, with a repo, addresses and ports of its own.
block serve.toml | sed "s|/var/lib/polyserve|$tmp/store|; s/127\.0\.0\.1:[0-9]*/127.0.0.1:0/" >"$tmp/serve.toml"
"$program" serve --config "$tmp/serve.toml" --check-config
start "$program" serve --config "$tmp/serve.toml" --lame-duck 0s
answered 201 -X PUT "$url/" -d '{"id":1,"description":"a","value":1.5}'
stop
start "$program" serve --config "$tmp/serve.toml" --handover "$tmp/handover.sock"
first=$pid first_url=$url
start "$program" serve --config "$tmp/serve.toml" --handover "$tmp/handover.sock"
wait "$first" || { echo "the first process fails" >&2; exit 1; }
[ "$url" = "$first_url" ] || { echo "$url instead of $first_url" >&2; exit 1; }
answered 200 "$url/1"
kill "$pid"
wait "$pid"
pid=
echo "configuration file, handover: ok"

# TLS by the server: only a client with a certificate is served, and a new certificate needs no restart.
certs=$tmp/certs
mkdir "$certs"
block certificates.sh >"$certs/new.sh"
issue() { (cd "$certs" && bash -e new.sh) >"$tmp/proxy.log" 2>&1; }
# served ARGUMENTS...: the status of a request to the server with TLS.
served() { curl -sS --max-time 20 --cacert "$certs/ca.pem" -o /dev/null -w '%{http_code}' "$@" "$url/1" 2>"$tmp/proxy.log"; }
as_alice() { served --cert "$certs/alice.pem" --key "$certs/alice-key.pem"; }
issue
start "$program" serve --listen 127.0.0.1:0 --tls-cert "$certs/server.pem" --tls-key "$certs/server-key.pem" --tls-client-ca "$certs/ca.pem"
[ "$(as_alice)" = 404 ] || { echo "a client with a certificate is not served" >&2; cat "$tmp/proxy.log" >&2; exit 1; }
! served >/dev/null || { echo "a client without a certificate is served" >&2; exit 1; }
openssl s_client -connect "${url#https://}" -CAfile "$certs/ca.pem" -cert "$certs/alice.pem" -key "$certs/alice-key.pem" \
    -verify_return_error -alpn http/1.1 </dev/null >"$tmp/proxy.log" 2>&1 || { cat "$tmp/proxy.log" >&2; exit 1; }
grep -q 'ALPN protocol: http/1.1' "$tmp/proxy.log" || { cat "$tmp/proxy.log" >&2; exit 1; }
issue # of another authority
kill -HUP "$pid"
for _ in $(seq 100); do [ "$(as_alice)" != 404 ] || break; sleep 0.1; done
[ "$(as_alice)" = 404 ] || { echo "the new certificate is not used" >&2; cat "$tmp/proxy.log" >&2; exit 1; }
stop
echo "TLS: ok"

# Users with tokens.
block tokens.sh >"$certs/tokens.sh"
(cd "$certs" && PATH=$(dirname "$program"):$PATH bash -e tokens.sh) 2>"$tmp/shown"
token_of() { sed -n "s/^the token of $1, .*: //p" "$tmp/shown"; }
start "$program" serve --listen 127.0.0.1:0 --tls-cert "$certs/server.pem" --tls-key "$certs/server-key.pem" --tokens "$certs/tokens"
answered 401 "$url/1"
answered 404 -H "Authorization: Bearer $(token_of probe)" "$url/1"
answered 403 -H "Authorization: Bearer $(token_of probe)" -X DELETE "$url/1"
answered 404 -H "Authorization: Bearer $(token_of alice)" -X DELETE "$url/1"
stop
echo "tokens: ok"

# The steps from the sources to a server, in one shell as the page asks, with free ports.
walk=$tmp/walk port=$(free_port) admin_port=$(free_port)
mkdir "$walk"
block certificates.sh >"$walk/certificates.sh"
steps() { for name in "$@"; do block "$name"; done | sed "s/8443/$port/; s/9001/$admin_port/"; }
steps first.toml >"$walk/first.toml"
{ steps first.sh restart.sh restore.sh; echo 'kill $! && wait $!'; } >"$walk/steps.sh"
(
    cd "$walk"
    export PATH=$(dirname "$program"):$PATH
    bash -e certificates.sh
    bash -e "$certs/tokens.sh"
) >"$tmp/proxy.log" 2>"$tmp/shown" || { cat "$tmp/shown" >&2; exit 1; }
(cd "$walk" && PATH=$(dirname "$program"):$PATH TOKEN=$(token_of alice) exec bash -e steps.sh) >"$tmp/proxy.log" 2>&1 ||
    { cat "$tmp/proxy.log" >&2; exit 1; }
[ "$(grep -c '"a first entity"' "$tmp/proxy.log")" = 2 ] || { echo "the entity is not in the copy" >&2; cat "$tmp/proxy.log" >&2; exit 1; }
echo "from the sources to a server: ok"

# The units start the server with the machine, and not with its first client only.
if command -v systemctl >/dev/null || apt_install --no-install-recommends systemd; then
    units=$tmp/root/etc/systemd/system
    mkdir -p "$units"
    for unit in polyserve.socket polyserve.service; do
        block "$unit" >"$units/$unit"
        systemctl --root="$tmp/root" enable "$unit" >"$tmp/proxy.log" 2>&1
        [ "$(systemctl --root="$tmp/root" is-enabled "$unit")" = enabled ] || { echo "$unit is not enabled" >&2; cat "$tmp/proxy.log" >&2; exit 1; }
    done
    echo "systemd: ok"
else
    echo "systemd: not run: it cannot be installed"
fi
