// Package setup is what the guest program does for a gVisor sandbox before it serves. It has two halves, which run in two
// processes of the same binary:
//
//	launcher  first process of a jail of host namespaces: builds the file tree, starts runsc, ends with it
//	guest     first process inside gVisor: takes the last steps of its confinement over its stdin, then serves
//
// The server uses it for the messages to both. It is linked into the guest and its imports are paid on every start.
//
// Files: config.go the messages; launch_linux.go the launcher; boot_linux.go how it starts gofer and
// sentry; jail_linux.go its file tree; inside_linux.go the guest.
package setup
