// Package setup runs inside the new process of a native sandbox, before the guest serves: it turns a process with fresh
// namespaces into a confined one. The server uses it for the two messages that go between them.
//
// It is linked into the guest and its imports are paid on every start. It runs on the main thread and uses plain system
// calls only: the runtime's poller would open descriptors that outlive the walls.
//
// Files: config.go the messages; setup_linux.go the order of the steps; mounts_linux.go the file tree; confine_linux.go
// ids, limits, capabilities and the filter.
package setup
