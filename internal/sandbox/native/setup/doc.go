// Package setup runs inside the new process of a native sandbox, before the guest serves: it turns a process with fresh
// namespaces into a confined one. It is linked into the guest and its imports are paid on every start.
package setup
