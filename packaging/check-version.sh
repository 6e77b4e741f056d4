#!/usr/bin/env bash
# Checks that a tag (v1.2.3) is the version of the workspace and has a section in the changelog.
# With --notes, prints that section.
#
#   packaging/check-version.sh [--notes] TAG
set -euo pipefail
cd "$(dirname "$0")/.."

notes=
if [ "${1-}" = --notes ]; then
    notes=yes
    shift
fi
tag=${1:?name the tag}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
[ "$tag" = "v$version" ] || {
    echo "$tag is not v$version, the version in Cargo.toml" >&2
    exit 1
}
section=$(awk -v heading="## [$version]" 'index($0, heading) == 1 { found = 1; next } /^## / { found = 0 } found' CHANGELOG.md)
[ -n "$section" ] || {
    echo "CHANGELOG.md has no section \"## [$version]\"" >&2
    exit 1
}
[ -z "$notes" ] || printf '%s\n' "$section"
