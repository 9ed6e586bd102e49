// Package sandbox is an isolated place that runs commands. It knows no API, no user and no database: it is given a root
// folder, a workspace and limits, and answers with a Sandbox.
//
// # Invariants
//
// Every limit of a Spec is in force before the first instruction of a command, and no limit can be absent: a driver that
// cannot set one refuses to create. A failed Create leaves nothing behind.
//
// Nothing outlives its server by more than names. Mounts hang in no tree of the host, loop devices clear themselves, id
// ranges are locks of open files, and the kernel kills a guest whose server is gone. What is left after a SIGKILL are
// empty cgroups and folders, which carry the instance's name and go with the next Sweep.
//
// The host never opens a path that code inside has chosen. File work happens in the guest.
//
// # The life of a workspace and its sandboxes
//
//	Workspaces.Create -> image -- Attach --> loop device + detached mount -- Driver.Create --> sandbox
//	                       ^                   |   ^                                             |
//	                       '----- Detach ------'   '------------------ Destroy -----------------'
//
// The mount stays between two sandboxes, so that ending one does not wait for a file system to be written out. An image
// is attached once at a time on the whole host; the lock lies on the image and is kept by the loop device.
//
// # Goroutines
//
// Pool.run, from Start to Stop, makes and destroys the members of a pool. Nothing else outlives its call; a call may
// destroy the sandbox it has condemned before it returns. Drivers list theirs in their own package comment; guest.Conn has a reader and a writer.
//
// # Files
//
// sandbox.go what a driver promises; call.go commands, and why a sandbox ended; spec.go limits and their check; host.go
// whose sandboxes they are; lease_linux.go host id ranges; cgroup_linux.go where the groups go, cgroup_v2_linux.go the
// same on pure v2, cgroup_group_linux.go the group of one sandbox, cgroup_usage_linux.go its counters; sweep_linux.go what
// a crash leaves; workspace.go and workspace_linux.go images, workspace_template_linux.go how a blank one is made,
// workspace_attach_linux.go how one is mounted, workspace_folders_linux.go how a sandbox gets its folders,
// workspace_repair_linux.go how one is mended; snapshots_linux.go what ran in sandboxes that were put away; lock_linux.go file locks; ballast_linux.go room for when the disk has none; pool.go sandboxes kept ready, pool_base_linux.go one more of them on disk; rights.go what a server must be allowed to do.
package sandbox
