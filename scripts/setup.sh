#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that are missing, and nothing else. Run it as often as you like.
#   scripts/setup.sh demo   what building and serving need
#   scripts/setup.sh v2     what make test-v2 needs: a machine in software
#   scripts/setup.sh test   also what the tests need: a database server, an S3 server, Node for the JavaScript clients
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
what=${1:-test}

missing=()
want() { # want COMMAND-OR-FILE PACKAGE...
  local probe=$1
  shift
  case $probe in
    /*) compgen -G "$probe" >/dev/null && return ;;
    *) PATH="$PATH:/usr/sbin:/sbin" command -v "$probe" >/dev/null && return ;;
  esac
  missing+=("$@")
}

want mmdebstrap mmdebstrap
want /usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
want mkfs.ext4 e2fsprogs
want /etc/ssl/certs/ca-certificates.crt ca-certificates
if [ "$what" = v2 ]; then
  want qemu-system-x86_64 qemu-system-x86
  want busybox busybox-static
fi
if [ "$what" = test ]; then
  want git git
  want gcc gcc
  want '/usr/include/stdio.h' libc6-dev
  want curl curl
  want bwrap bubblewrap
  want zstd zstd
  want pdftotext poppler-utils
  want '/usr/lib/postgresql/*/bin/initdb' postgresql
  want node nodejs
  want npm npm
fi

if ! command -v go >/dev/null; then
  echo "Go 1.26 or newer is needed and is not in PATH. See https://go.dev/doc/install" >&2
  exit 2
fi
if [ ${#missing[@]} -eq 0 ]; then
  echo "set-up: nothing is missing"
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "These are missing, and only Debian's and Ubuntu's apt-get is known here: ${missing[*]}" >&2
  exit 2
fi
echo "set-up: missing: ${missing[*]}"
need_root "apt-get install --no-install-recommends ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
privileged apt-get -qq update
privileged apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends "${missing[@]}"
