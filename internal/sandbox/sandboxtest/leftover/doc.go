// Package leftover removes the empty cgroups of test processes and test servers that were killed. Nobody else does: the
// next run has another instance id, and a driver sweeps its own instance only.
//
// A name says whether its owner is dead: test drivers are called "<word><process id>n<number>", and a server holds a lock
// under its instance id. A group of any other name, or with a process in it, is left alone.
package leftover
