#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages of tools/packages.txt that are missing. Says plainly what to do where it may not.
#     tools/setup.sh            install what is missing
#     tools/setup.sh --check    only say what is missing; exit 1 if anything is
set -eu
here=$(dirname "$0")
if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: this is not a Debian system; install the equivalents of these packages by hand:" >&2
    grep -v '^#' "$here/packages.txt" >&2
    exit 1
fi
missing=
for package in $(grep -v '^#' "$here/packages.txt"); do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "${1:-}" = --check ]; then
    echo "missing:$missing" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null 2>&1; then
        sudo=sudo
    else
        echo "setup: these packages are missing and only root can install them:" >&2
        echo "    apt-get install$missing" >&2
        exit 1
    fi
fi
echo "setup: installing$missing"
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
$sudo apt-get update -q
$sudo apt-get install -q -y --no-install-recommends $missing
