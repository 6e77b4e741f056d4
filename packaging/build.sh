#!/usr/bin/env bash
# Builds the packages of a release into target/packages.
#
#   packaging/build.sh [--binary FILE | [--target TRIPLE] [--train]] PART...
#
# Parts:
#   program    the binary alone
#   share      man pages, completions and the JSON Schema, made by the binary
#   tarball    the binary with everything in `share`, examples, units
#   deb        the Debian package (needs cargo-deb)
#   rootfs     the context of the container image (the binary has to be static)
#   container  the image `dunlin` (needs docker, podman or buildah)
#   book       the book as HTML (needs mdbook)
#   sbom       the software bill of materials in CycloneDX form (needs cargo-cyclonedx)
#   checksums  SHA256SUMS of all files that were built
#
# Without --binary, the binary is built with the profile `dist` for the target (this machine's, unless it is given).
# With --train, it is built twice: the first one runs packaging/train.sh, and the profile of that run guides the
# optimization of the second one (needs `rustup component add llvm-tools`, and a target whose programs run here).
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."

OUT=${OUT:-$PWD/target/packages}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
# Archives of the same commit are the same.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
binary=''
target=''
is_trained=''

fail() {
    printf 'packaging/build.sh: %s\n' "$*" >&2
    exit 1
}

need() {
    command -v "$1" >/dev/null || fail "$1 is not installed: $2"
}

host() {
    rustc -vV | sed -n 's/^host: //p'
}

compile() { # compile [RUSTFLAG...]
    local flags=()
    # An empty variable would override the flags of the user's configuration.
    [ $# -eq 0 ] || flags=(env "RUSTFLAGS=${RUSTFLAGS-} $*")
    "${flags[@]}" cargo build --locked --profile dist -p dunlin --all-features --target "${target:=$(host)}"
    binary=target/$target/dist/dunlin
}

# A binary that is optimized by the profile of a training run.
compile_trained() {
    local profiles=$PWD/target/profiles merge
    merge=$(rustc --print sysroot)/lib/rustlib/$(host)/bin/llvm-profdata
    [ -x "$merge" ] || fail "llvm-profdata is not installed: rustup component add llvm-tools"
    rm -rf "$profiles"
    compile "-Cprofile-generate=$profiles"
    packaging/train.sh "$binary"
    "$merge" merge -o "$profiles/merged.profdata" "$profiles"/*.profraw
    compile "-Cprofile-use=$profiles/merged.profdata"
}

# The binary, built once.
binary() {
    if [ -z "$binary" ]; then
        if [ -n "$is_trained" ]; then compile_trained; else compile; fi
    fi
    [ -x "$binary" ] || fail "$binary is not an executable file"
}

program() {
    binary
    install -m 755 "$binary" "$OUT/dunlin"
}

share() {
    binary
    local share=$OUT/share
    rm -rf "$share"
    mkdir -p "$share"/{man,dunlin,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
    "$binary" man "$share/man" >/dev/null
    "$binary" completions bash >"$share/bash-completion/completions/dunlin"
    "$binary" completions zsh >"$share/zsh/site-functions/_dunlin"
    "$binary" completions fish >"$share/fish/vendor_completions.d/dunlin.fish"
    "$binary" check --schema >"$share/dunlin/dunlin.schema.json"
    find "$share/man" -type f -exec gzip -9nf {} +
}

tarball() {
    share
    local name=dunlin-$version-${target:=$(host)}
    local tree=$OUT/$name
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,share,etc/dunlin}
    install -m 755 "$binary" "$tree/bin/dunlin"
    cp -r "$OUT"/share/. "$tree/share/"
    cp -r examples packaging/{systemd,sysusers.d,tmpfiles.d,logrotate.d,apparmor,prometheus,grafana,kubernetes} "$tree/share/dunlin/"
    cp -r packaging/www "$tree/share/dunlin/www"
    cp packaging/debian/dunlin.toml "$tree/etc/dunlin/"
    cp README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$tree/"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$OUT" -cf - "$name" |
        gzip -9n >"$OUT/$name.tar.gz"
    rm -r "$tree"
}

deb() {
    need cargo-deb "cargo install --locked cargo-deb"
    share
    # crates/cli/Cargo.toml names the files of the package in this directory.
    rm -rf target/debian/files
    mkdir -p target/debian/files
    install -m 755 "$binary" target/debian/files/dunlin
    cp -r "$OUT/share" target/debian/files/
    gzip -9n <CHANGELOG.md >target/debian/files/changelog.gz
    # shellcheck disable=SC2086 # several options
    cargo deb --quiet --package dunlin --no-build --no-strip --output "$OUT/" ${DEB_OPTIONS-}
}

rootfs() {
    binary
    local root=$OUT/container/rootfs
    rm -rf "$OUT/container"
    mkdir -p "$root"/{usr/bin,etc/dunlin,etc/ssl/certs,srv/www,tmp,var/tmp} "$OUT"/container/writable/{run,var/lib}/dunlin
    chmod 1777 "$root"/{tmp,var/tmp}
    install -m 755 "$binary" "$root/usr/bin/dunlin"
    cp packaging/container/dunlin.toml "$root/etc/dunlin/"
    cp packaging/www/index.html "$root/srv/www/"
    # Authorities of other servers' certificates: ACME, forward authentication, traces.
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    printf 'root:x:0:0::/:/sbin/nologin\ndunlin:x:65532:65532::/var/lib/dunlin:/sbin/nologin\n' >"$root/etc/passwd"
    printf 'root:x:0:\ndunlin:x:65532:\n' >"$root/etc/group"
    cp packaging/container/Containerfile "$OUT/container/"
}

container() {
    rootfs
    if file -b "$OUT/container/rootfs/usr/bin/dunlin" | grep -q 'dynamically linked'; then
        fail "the image needs a static binary: --target $(uname -m)-unknown-linux-musl"
    fi
    local builder
    for builder in docker podman buildah; do
        command -v "$builder" >/dev/null || continue
        local format=()
        # The default format of the others has no health check.
        [ "$builder" = docker ] || format=(--format docker)
        "$builder" build "${format[@]}" -t dunlin -t "dunlin:$version" -f "$OUT/container/Containerfile" "$OUT/container"
        return
    done
    fail "there is no docker, podman or buildah"
}

book() {
    need mdbook "cargo install --locked mdbook"
    mdbook build docs --dest-dir "$OUT/book"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$OUT" -cf - book |
        gzip -9n >"$OUT/dunlin-$version-book.tar.gz"
}

sbom() {
    need cargo-cyclonedx "cargo install --locked cargo-cyclonedx"
    cargo cyclonedx --format json --manifest-path crates/cli/Cargo.toml --override-filename "dunlin-$version.cdx"
    mv "crates/cli/dunlin-$version.cdx.json" "$OUT/"
    find crates benches -name "dunlin-$version.cdx.json" -delete
}

checksums() (
    cd "$OUT"
    shopt -s nullglob
    files=(*.deb *.tar.gz *.json)
    [ ${#files[@]} -gt 0 ] || fail "there are no files in $OUT"
    sha256sum "${files[@]}" >SHA256SUMS
)

parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$(cd "$caller" && realpath "$2") && shift ;;
    --target) target=$2 && shift ;;
    --train) is_trained=1 ;;
    program | share | tarball | deb | rootfs | container | book | sbom | checksums) parts+=("$1") ;;
    *) fail "there is no part $1; see the head of the script" ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || fail "name the parts to build; see the head of the script"
mkdir -p "$OUT"
for part in "${parts[@]}"; do
    "$part"
done
