// Package setup runs inside the new process of a native sandbox, before the guest serves: it turns a process with fresh
// namespaces into a confined one. The steps that the other driver takes, too, are those of package walls.
//
// It runs on the main thread.
//
// Files: config.go the message; setup_linux.go the order of the steps; mounts_linux.go the file tree.
package setup
