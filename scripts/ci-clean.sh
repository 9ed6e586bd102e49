#!/usr/bin/env bash
# Proves that a stranger's machine is enough: a fresh Debian minbase chroot with only make, git and certificates, Go bind-mounted,
# an empty home, a clean clone of HEAD; then .ci/run (or AIRLOCK_CI_COMMAND). All mounts live in a private mount namespace and vanish with it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
need_root "make ci-clean"
# shellcheck disable=SC1091
suite=${AIRLOCK_CI_SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
base=$(mktemp -d "${AIRLOCK_CI_DIR:-/var/tmp}/airlock-ci-XXXXXX")
root=$base/root
trap '${SUDO[@]+"${SUDO[@]}"} rm -rf --one-file-system "$base"' EXIT

echo "== a fresh $suite in $root"
privileged unshare --mount --propagation private mmdebstrap --quiet --variant=minbase --dpkgopt=force-unsafe-io --include=make,git,ca-certificates "$suite" "$root"
echo "== a clean clone of $(git rev-parse --short HEAD)"
git clone -q --no-hardlinks . "$base/clone"
git -C "$base/clone" checkout -q --detach "$(git rev-parse HEAD)"

cat >"$base/inside" <<'INSIDE'
set -euo pipefail
root=$1 goroot=$2 clone=$3
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/usr/local/go" "$root/src" "$root/empty-home" "$root/usr/local/share/ca-certificates"
mount --bind "$goroot" "$root/usr/local/go"
mount -o remount,bind,ro "$root/usr/local/go"
mv "$clone" "$root/src/airlock"
# How this host reaches the network, and whom it trusts, holds inside too.
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
grep -lsE 'Acquire' /etc/apt/apt.conf.d/* | xargs -r cp -t "$root/etc/apt/apt.conf.d/" || true
# A chroot has no init: packages must not start their services.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
keep=()
for name in GOPROXY GOSUMDB GOFLAGS GOTOOLCHAIN HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy SSL_CERT_FILE NODE_EXTRA_CA_CERTS AIRLOCK_REQUIRE; do
  [ -z "${!name:-}" ] || keep+=("$name=${!name}")
done
# Not chroot alone: the kernel refuses user namespaces to a process whose root is not the root of its mounts.
mkdir "$root/.host"
cd "$root"
pivot_root . .host
exec chroot . /usr/bin/env -i "${keep[@]}" CI=true HOME=/empty-home LANG=C.UTF-8 TERM=dumb \
  PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  GOPATH=/empty-home/go GOCACHE=/empty-home/cache XDG_DATA_HOME=/empty-home/data \
  bash -c "umount -l /.host && cd /src/airlock && ${AIRLOCK_CI_COMMAND:-exec bash .ci/run}" </dev/null
INSIDE
goroot=$(go env GOROOT)
export GOPROXY GOSUMDB GOFLAGS GOTOOLCHAIN
GOPROXY=$(go env GOPROXY) GOSUMDB=$(go env GOSUMDB) GOFLAGS=$(go env GOFLAGS) GOTOOLCHAIN=$(go env GOTOOLCHAIN)
start=$SECONDS code=0
echo "== ${AIRLOCK_CI_COMMAND:-.ci/run} inside"
privileged --preserve-env unshare --mount --propagation private bash "$base/inside" "$root" "$goroot" "$base/clone" || code=$?
echo "== ${AIRLOCK_CI_COMMAND:-.ci/run} in a fresh chroot: exit $code after $((SECONDS - start)) s"
exit $code
