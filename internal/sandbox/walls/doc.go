// Package walls has what both drivers do inside the new process of a sandbox, before code of a tenant can run: the steps that
// confine it, and the messages between it and its driver. Which steps, and in which order, is up to each driver's package
// setup.
//
// It is linked into the guest and its imports are paid on every start. It uses plain system calls only: the runtime's
// poller would open descriptors that outlive the walls.
//
// Files: message.go the frames, for either side; socket_linux.go the socket they come over; identity_linux.go ids, cores,
// limits, capabilities and loading the filter; mounts_linux.go mounts that hang nowhere, and how they become a tree.
package walls
