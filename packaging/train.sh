#!/usr/bin/env bash
# Runs a binary that was built with `-C profile-generate` over the work of a server and of its commands, so that its
# profile guides the optimization of another build. packaging/build.sh --train calls it.
#
#   packaging/train.sh BINARY
#
# The binary writes its profile where it was built to write it. DURATION is the time of each load, 1s unless it is set.
# Programs that are missing (python3, cc, openssl, rustc with the target wasm32-wasip2) leave out their part.
set -euo pipefail
binary=$(realpath "$1")
duration=${DURATION:-1s}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
chmod 755 "$work"
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
server=''

fail() {
    printf 'packaging/train.sh: %s\n' "$*" >&2
    exit 1
}

# A site of 2,000 documents of 1 to 20 KB, which does not fit its cache.
site=$work/site
mkdir -p "$site"/{documents,off} "$work"/{cgi,plus,app,components}
head -c 1024 /dev/urandom >"$site/1k.bin"
head -c 65536 /dev/urandom >"$site/64k.bin"
head -c 10000000 /dev/urandom >"$site/10m.bin"
cp "$site"/{1k,64k}.bin "$site/off"
for ((n = 0; n < 2000; n++)); do
    head -c $((1024 + n % 20 * 1024)) README.md >"$site/documents/$n.html"
    printf '/documents/%d.html\n' "$n"
done >"$work/urls"
# A file that has changed a moment ago is checked more often.
find "$site" -type f -exec touch -d '1 hour ago' {} +
printf '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\nhello\\n"\n' >"$work/cgi/hello"
chmod 755 "$work/cgi/hello"

routes=''
scripts=(cgi/hello)
route() { # route PATH LINES
    routes+="[[site.route]]
path = \"$1\"
$2
"
}
route '/cgi/*' "script = { kind = \"cgi\", directory = \"$work/cgi\" }"
route '/off/*' 'cache = false'
if command -v cc >/dev/null; then
    printf '#include <stdio.h>\n#include "cgiplus.h"\nint main(void) {\n    while (cgiplus_next()) printf("Content-Type: text/plain\\r\\n\\r\\nhello\\n");\n    return 0;\n}\n' >"$work/plus.c"
    cc -O2 -Iscripting/cgiplus -o "$work/plus/hello" "$work/plus.c" scripting/cgiplus/cgiplus.c
    route '/plus/*' "script = { kind = \"cgiplus\", directory = \"$work/plus\" }"
    scripts+=(plus/hello)
fi
if command -v python3 >/dev/null; then
    printf 'def application(environ, start_response):\n    body = b"hello\\n"\n    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])\n    return [body]\n' >"$work/app/app.py"
    route '/wsgi/*' "script = { kind = \"wsgi\", application = \"app:application\", directory = \"$work/app\", processes = 1 }"
    scripts+=(wsgi/)
fi
if rustc --edition 2024 -O --target wasm32-wasip2 -o "$work/components/cgi.wasm" scripting/component/cgi.rs 2>/dev/null; then
    route '/component/*' "script = { kind = \"component\", file = \"$work/components/cgi.wasm\" }"
    scripts+=(component/)
fi

# Ports that were free a moment ago: the routes of the proxy name one of them.
port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 10000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            printf '%d' "$port"
            return
        fi
    done
}
plain=$(port)
secure=$((plain + 1))
target="127.0.0.1:$plain"
tls=''
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
        -keyout "$work/key.pem" -out "$work/certificate.pem" 2>/dev/null
    tls="tls = { certificate = \"$work/certificate.pem\", key = \"$work/key.pem\" }"
fi
route '/proxy/*' "proxy = { to = [\"http://$target\"], strip = \"/proxy\" }"
route '/proxy2/*' "proxy = { to = [\"h2c://$target\"], strip = \"/proxy2\" }"
route '/stored/*' "proxy = { to = [\"http://$target\"], strip = \"/stored\" }
cache = { responses = true }"

cat >"$work/dunlin.toml" <<EOF
[server]
threads = 1
state = "$work/state"
cache = { size = "4 MiB" }
access_log = "$work/access.log"
[[listen]]
address = "$target"
${tls:+"[[listen]]
address = \"127.0.0.1:$secure\"
tls = true"}
[[site]]
host = ["localhost", "127.0.0.1"]
root = "$site"
$tls
$routes
EOF
"$binary" check -c "$work/dunlin.toml"
"$binary" serve -c "$work/dunlin.toml" &
server=$!
for ((n = 0; n < 600; n++)); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$plain") 2>/dev/null; then break; fi
    kill -0 "$server" || fail "the server has ended"
    sleep 0.1
done
"$binary" load -c 1 -n 1 "http://$target/1k.bin" >/dev/null

load() { # load OPTION... PATH
    "$binary" load -d "$duration" "${@:1:$#-1}" "http://$target/${*: -1}" || fail "dunlin load $* has failed"
}
load 1k.bin
load --pipeline 10 1k.bin
load --http2 --streams 16 1k.bin
load --no-keepalive 1k.bin
load -H 'Accept-Encoding: gzip, br, zstd' -H 'User-Agent: Mozilla/5.0' -H 'Accept: text/html' --urls-file "$work/urls" --choose zipf:1.0 ''
load --urls-file "$work/urls" --choose random ''
load --urls-file "$work/urls" --choose random --http2 --streams 16 ''
load -H 'Range: bytes=100-199' 64k.bin
load off/1k.bin
load off/64k.bin
load -c 4 10m.bin
load proxy/1k.bin
load proxy/64k.bin
load -c 4 proxy/10m.bin
load proxy2/1k.bin
load --http2 --streams 16 proxy/1k.bin
load --http2 --streams 16 proxy2/1k.bin
load stored/1k.bin
if [ -n "$tls" ]; then
    "$binary" load -d "$duration" --insecure "https://127.0.0.1:$secure/1k.bin"
    "$binary" load -d "$duration" --insecure --http2 --streams 16 "https://127.0.0.1:$secure/1k.bin"
    "$binary" load -c 4 -d "$duration" --insecure --no-keepalive "https://127.0.0.1:$secure/1k.bin"
fi
for script in "${scripts[@]}"; do
    # Its process may need longer to start than the load lasts.
    "$binary" load -c 1 -n 1 "http://$target/$script" >/dev/null || fail "$script does not respond"
    load -c 8 "$script"
    load -c 8 --data 'name=value&count=3' "$script"
    load -c 8 --http2 --streams 4 "$script"
done
kill "$server"
wait "$server" || fail "the server ended with status $?"
server=''
