// Package seccomp assembles the system call filter that both drivers put around what they start. It only makes the program;
// package walls loads it.
//
// Files: filter.go the program, args.go its rules on arguments, table.go its lists of calls.
package seccomp
