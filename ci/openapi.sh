#!/usr/bin/env bash
# Checks the answers of a server on its own codec and of one on hyper against /openapi.json, with requests that schemathesis derives from
# that document.
# If schemathesis cannot be installed, this is reported as not run.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/session.sh
build_program

tools=target/schemathesis
if ! [ -x $tools/bin/st ]; then
    { python3 -m venv $tools || { apt_install python3-venv && python3 -m venv $tools; }; } >"$tmp/log" 2>&1 &&
        timeout 300 $tools/bin/pip -q install schemathesis==4.32.5 >"$tmp/log" 2>&1 ||
        { rm -rf $tools; echo "not run: schemathesis cannot be installed" >&2; tail -n 5 "$tmp/log" >&2; exit 0; }
fi
# What the document cannot say: a condition may fail, the id in the path must be that of the entity, TRACE is 501
# as everywhere, and OPTIONS is about a path, whether there is an entity or not.
cat >"$tmp/schemathesis.toml" <<'END'
[checks]
positive_data_acceptance.enabled = false
unsupported_method.enabled = false
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501"]
negative_data_rejection.expected-statuses = ["400", "404", "405", "412", "415", "422", "501"]

[[operations]]
include-method = "OPTIONS"
checks.use_after_free.enabled = false
END
for server in pool_server tokio_hyper; do
    start "$program" serve --server $server --repo ordered --listen 127.0.0.1:0 --admin 127.0.0.1:0 --etags on
    admin_address
    (cd "$tmp" && "$OLDPWD/$tools/bin/st" run "$admin/openapi.json" --url "$url" --seed 1 --max-examples 100 --no-color) >"$tmp/report" 2>&1 || { cat "$tmp/report" >&2; exit 1; }
    grep -A1 'Test cases:' "$tmp/report" | tail -n 1 | sed "s/^ */$server: /"
    stop
done
