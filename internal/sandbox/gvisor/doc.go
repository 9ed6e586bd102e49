// Package gvisor makes sandboxes whose kernel is gVisor's: what code inside can try is what the sentry, a kernel in user
// space, lets it, and the sentry itself runs walled in on the host.
//
// # How a sandbox is made
//
//	server                          launcher (first process of the jail)     guest (first process inside gVisor)
//	lease an id range
//	make cgroups, write all limits
//	clone3 into the v2 group --->   exec the guest program from memory
//	write id maps, join v1 groups   wait for the message on descriptor 3
//	make detached mounts
//	send jail and mounts ------->   take the ids, build the tree, pivot
//	send the guest its message      start gofer and sentry ------------->    control group, filter
//	send the greeting               status                                   status; serve over stdin and stdout
//
// The jail is the wall of the native driver once more, around runsc instead of code: namespaces of every kind, ids of the
// leased range, nothing of the host's file tree. Whoever broke out of the sentry and out of runsc's own walls would be an
// unprivileged user of the host without a network, in an empty tree, under the limits of this sandbox.
//
// # Invariants
//
// The launcher is the first process of a PID namespace and dies with the server: the kernel then ends sentry, gofer and
// everything inside, and the last process takes all mounts with it, runsc's own included. Nothing is written to the host
// but cgroups, so a sweep has nothing of runsc to look for.
//
// A frozen sandbox is stopped by its sentry, not by the host's freezer, which does not know what it stops there.
//
// Limits are the host's cgroup around all processes of runsc. Inside it, the sentry's own control groups hold the process
// limit, because a sentry that cannot make a thread dies. The processor limit is set when the guest is ready, before the
// first command: the start of runsc is no code of a tenant. A checkpoint has code in it and is continued under the limit. When the memory limit is reached the kernel kills a process of
// runsc, and the sandbox ends as a whole.
//
// # Goroutines
//
// None of its own: those of package spawn.
//
// # Files
//
// driver_linux.go the driver; create_linux.go the left-hand side above; bundle.go what runsc is told; runsc_linux.go where
// it is and which version; snapshot_linux.go checkpoint and restore; probe_linux.go the self-test; package setup has the two
// other columns.
package gvisor
