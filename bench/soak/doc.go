// Command soak runs a built server for a long time under everything that goes wrong, and writes a dated report: it is
// killed, its disk fills up, cgroups cannot be made, guests are killed, the clock jumps, and all of it inside a memory
// cgroup of 4 GiB. A second server beside it must not notice.
//
// It fails if anything leaks, if a workspace is lost, if an answer says what was not so, or if a request is refused with a
// status that nothing explains.
//
// It must run as root in a mount namespace of its own (make soak sees to both): its loop file system then vanishes with it.
// Its random choices come from -seed, which the report names; the order of events is that of the machine.
//
// What leaks is counted from outside, by kind, when the server is at rest; nothing may have become more.
//
// Files: main.go the order of the phases; world.go disk, cgroups and servers; chaos.go what goes wrong; life.go what a
// container lives through and must still know; cycle.go create and destroy; held.go what a server holds; clock.go a server
// whose clock jumps; report.go.
package main
