// Package host finds out what isolation and limits this machine gives, and
// says for everything it lacks what that means and which line to type. It
// leaves nothing on the host: a probe that needs a cgroup, a namespace or a
// mount makes its own and removes it again, under a name that carries the
// process id, so that two doctors and a running server do not meet.
//
// A probe tries the thing itself wherever that is possible. The presence of a
// device node, a config option or a version number proves nothing, and is
// used only where a trial would change the host.
//
// Files: host.go the shapes and the list of checks, kernel_linux.go what the
// kernel must offer, cgroup_linux.go where limits come from, mount_linux.go
// id-mapped mounts, loop devices and /proc, resource.go memory and disk,
// product.go the guest, the root file system and the tools that build them.
package host
