// Command bench measures Airlock against the budgets of its design on the
// machine it runs on, and next to what a reader can run there too: a plain
// fork and exec, bubblewrap, bare runsc, a plain Go file server.
//
// Everything that is compared is interleaved in one loop, so that outside
// load hits all alike, and given as the median. Ratios count; absolute times
// depend on the machine. `make bench` prints the table and writes
// bench/results/latest.json.
//
// It needs root, bubblewrap, a root file system, and bin/airlock for the rows
// over HTTP. Files: main.go the run, result.go the rows and medians,
// sandbox.go the drivers, gvisor.go what only the gvisor one has budgets for, server.go the built server, plain.go the yardsticks.
package main
