// Package spawn starts the first process of a sandbox: in namespaces of its own, with leased host ids, born in its cgroup,
// and bound to die with the server. Both drivers use it; what the process then does is theirs.
//
// # Invariants
//
// A child is given four descriptors, its arguments and variables, and nothing else of the server. It dies with the thread
// that started it, so one thread starts them all and lives as long as its Spawner. Mounts are made detached and shifted to
// the child's ids: they hang in no tree of the host.
//
// # Goroutines
//
// Spawner.run, one per driver, ends in Stop. Instance.watch, one per sandbox, ends when the process has been reaped. LastWords.read, one per sandbox, ends when its pipe has no writer.
//
// # Files
//
// spawner_linux.go who starts; child_linux.go how; mount_linux.go the files it gets to see, device_linux.go its /dev; spec_linux.go what a spec means
// for it; instance_linux.go freeze, count, destroy; fleet_linux.go all of a driver; stderr_linux.go its last words;
// selftest_linux.go the self-test of a driver.
package spawn
