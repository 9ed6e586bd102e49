// Package native makes sandboxes out of Linux namespaces, cgroups and seccomp, without any helper program. The kernel is
// shared: what it lets a process do is what code inside can try.
//
// # How a sandbox is made
//
//	server                                   child
//	lease an id range
//	make cgroups, write all limits
//	clone3 into the v2 group ------------->  exec the guest from sealed memory
//	write its id maps                        (its runtime starts)
//	put it into the v1 groups                wait for the setup on descriptor 3
//	make detached mounts, owned by its ids
//	send setup and mounts ---------------->  take the ids, build the tree, pivot_root, loopback up,
//	send the greeting                        resource limits, drop capabilities, load the filter
//	read status and answer <---------------  status; serve
//
// The child runs nothing but our guest until the filter is loaded. Package setup has the right-hand side.
//
// # Invariants
//
// The server gives the child four descriptors, two words of argument and one harmless variable; everything else comes
// over the socket, which nobody can open again through /proc. A guest dies with the thread that started it, so one thread
// starts them all and lives as long as the driver. Files of the root and the workspace keep the ids that the sandbox
// sees; the mounts shift them to the leased range.
//
// # Goroutines
//
// None of its own: those of package spawn.
//
// # Files
//
// driver_linux.go the driver; create_linux.go the left-hand side above; mount_linux.go what the child gets to see;
// probe_linux.go the self-test.
package native
