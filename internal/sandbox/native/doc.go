// Package native makes sandboxes out of Linux namespaces, cgroups and seccomp, without any helper program.
package native
