#!/usr/bin/env bash
# Runs the tests that depend on control groups on a kernel whose only hierarchy is v2: Debian's, booted in qemu by software
# emulation, so that it needs neither KVM nor another machine. Nothing of this host's boot set-up is touched.
#   scripts/test-v2.sh [TEST-PATTERN]     the pattern replaces the choice of threat rows
# Prints "N passed, N failed"; the log is bin/v2/log. Exit code 0 only if something passed and nothing failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

need_root "make test-v2"
# Rows and rules about limits, their reports, killing and freezing; cgroups differ in nothing else. Row 12 makes 10,000
# processes, for which emulation is too slow.
threats='T(01|02|03|09|11|42|43|44|45|47|51|52|53|57)|T39'
pattern=${1:-"^(TestConformance|TestThreats)$/^native$/^(Frozen|Limits|CPULimit|Usage|Destroy|Close|Sweep|Many|Outcomes|Blank|Workspace|Canceled|$threats)"}
limit=${AIRLOCK_V2_LIMIT:-900} # seconds that the machine may run
work=$PWD/bin/v2
images=${XDG_DATA_HOME:-$HOME/.local/share}/airlock/rootfs
mkdir -p "$work"

# The kernel comes from the archive that apt knows, unpacked, never installed.
kernel() {
  local package
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-/{print $2; exit}')
  [ -n "$package" ] || { echo "apt knows no linux-image-cloud-amd64: run apt-get update" >&2; return 1; }
  if [ ! -d "$work/$package" ]; then
    rm -rf "$work"/linux-image-* "$work"/*.deb
    (cd "$work" && apt-get -qq download "$package") || return 1
    dpkg-deb -x "$work"/"$package"_*.deb "$work/unpacked" && mv "$work/unpacked" "$work/$package" && rm -f "$work"/*.deb
  fi
  echo "$work/$package"
}

# What is needed before there is a root: a shell and the modules of the disk.
first_stage() {
  local from=$1 to=$2 name
  mkdir -p "$to/bin" "$to/modules" "$to/proc" "$to/dev" "$to/new"
  cp "$(command -v busybox)" "$to/bin/busybox"
  for name in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk loop; do
    find "$from/lib/modules" -name "$name.ko" -exec cp {} "$to/modules/" \;
  done
  cat >"$to/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for name in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk loop; do
  [ ! -f /modules/$name.ko ] || /bin/busybox insmod /modules/$name.ko
done
/bin/busybox mount -t ext4 /dev/vda /new && exec /bin/busybox switch_root /new /v2/init
echo "no root"; /bin/busybox poweroff -f
INIT
  chmod 755 "$to/init"
  (cd "$to" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/initramfs"
}

# e2fsprogs of this host with its own libraries, for a root that has none.
e2fsprogs() {
  local to=$1 tool lib
  mkdir -p "$to"
  for tool in mke2fs e2fsck; do
    cp "$(PATH=$PATH:/usr/sbin:/sbin command -v $tool)" "$to/$tool"
    for lib in $(ldd "$to/$tool" | grep -o '/[^ ]*'); do cp -Ln "$lib" "$to/"; done
  done
  cp /etc/mke2fs.conf "$to/"
}

wrapper() { # wrapper FILE NAME TOOL
  local loader
  loader=$(basename "$(ls "$1"/v2/e2fs/ld-*)")
  printf '#!/bin/sh\nMKE2FS_CONFIG=/v2/e2fs/mke2fs.conf exec /v2/e2fs/%s --argv0 %s --library-path /v2/e2fs /v2/e2fs/%s "$@"\n' \
    "$loader" "$2" "$3" >"$1/usr/sbin/$2"
  chmod 755 "$1/usr/sbin/$2"
}

# The disk: a machine made of the smallest root file system, and the same again for its sandboxes.
disk() {
  local image root=$work/root name
  image=$(ls -d "$images"/min-*/rootfs 2>/dev/null | head -n 1)
  [ -n "$image" ] || { echo "no root file system: run bin/airlock rootfs build --profile min" >&2; return 1; }
  rm -rf "$root" && mkdir -p "$root" && cp -a "$image/." "$root/"
  mkdir -p "$root/v2/rootfs" "$root/sys" "$root/run" && cp -a "$image/." "$root/v2/rootfs/"
  e2fsprogs "$root/v2/e2fs"
  wrapper "$root" mkfs.ext4 mke2fs
  wrapper "$root" e2fsck e2fsck
  cp "$work"/*.test "$root/v2/"
  printf '%s' "$pattern" >"$root/v2/pattern"
  cp scripts/test-v2-init.sh "$root/v2/init"
  truncate -s 2G "$work/disk" && mke2fs -q -F -t ext4 -O ^has_journal -d "$root" "$work/disk"
  rm -rf "$root"
}

scripts/setup.sh v2
PATH=$PATH:/usr/sbin:/sbin
from=$(kernel)
make -s guest
for package in sandbox sandbox/native sandbox/sandboxtest; do
  go test -c -o "$work/$(basename $package).test" "./internal/$package"
done
rm -rf "$work/first" "$work/disk"
first_stage "$from" "$work/first"
disk

echo "booting $(basename "$from") in qemu, at most $limit s"
timeout --foreground "$limit" nice -n 5 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 3072 \
  -kernel "$from"/boot/vmlinuz-* -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" \
  -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" -nic none -display none -no-reboot -serial stdio </dev/null | tr -d '\r' | tee "$work/log" || true
rm -rf "$work/disk" "$work/first" "$work/initramfs"

# Only what has no test below it counts, or a driver would be one more test.
count() { { grep -E "^ *--- $1: " "$work/log" || true; } | sed 's/ ([0-9.]*s)$//; s/^ *--- [A-Z]*: //' | sort -u | awk 'NR > 1 && index($0, last "/") != 1 { print last } { last = $0 } END { if (NR) print last }' | wc -l; }
passed=$(count PASS) failed=$(count FAIL)
grep '^v2: ' "$work/log" || true
echo "$passed passed, $failed failed"
grep -q '^v2: done$' "$work/log" || { echo "the machine did not come to its end: see $work/log" >&2; exit 1; }
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ] && ! grep -q '^v2: .* exit [1-9]' "$work/log"
