#!/bin/sh
# The first program of the machine that scripts/test-v2.sh boots: it runs the tests and turns the machine off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root AIRLOCK_TEST_ROOTFS=/v2/rootfs AIRLOCK_REQUIRE=root,native AIRLOCK_TEST_V2=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /run/airlock
echo "v2: kernel $(uname -r), $(date -u +%F), controllers $(cat /sys/fs/cgroup/cgroup.controllers)"

# As a service that its manager has delegated a group to, which is how it is deployed: the group holds the server.
service() { # service NAME
  mkdir -p "/sys/fs/cgroup/system.slice/$1.service"
  echo "+memory +pids +cpu" >/sys/fs/cgroup/cgroup.subtree_control
  echo "+memory +pids +cpu" >/sys/fs/cgroup/system.slice/cgroup.subtree_control
  echo 0 >"/sys/fs/cgroup/system.slice/$1.service/cgroup.procs"
}

run() { # run NAME ARGUMENTS...
  name=$1
  shift
  mkdir -p "/v2/scratch/$name" && cd "/v2/scratch/$name" || exit
  (service "$name" && TMPDIR="/v2/scratch/$name" exec "/v2/$name.test" -test.v -test.timeout 20m "$@") 2>&1
  echo "v2: $name exit $?"
  for left in $(find "/sys/fs/cgroup" -mindepth 1 -type d -name 'airlock-*'); do echo "v2: $name left $left"; done
}

run sandbox -test.run 'Cgroup|V2|Group|Sweep|Host'
run native
run sandboxtest -test.run "$(cat /v2/pattern)"
echo "v2: done"
echo o >/proc/sysrq-trigger
sleep 60
