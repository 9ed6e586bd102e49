// Package sandboxtest holds what every sandbox driver must keep: a conformance
// suite (Run) and the escape suite (Threats), one real attempt for each row of
// docs/threat-model.md. It is a library. The tests of this package run it on
// the drivers of this repository, and `airlock doctor --attack` can run the
// threats on a host that serves.
//
// It knows a driver only by sandbox.Driver and reads the host beside it: an
// attempt counts as held when the kernel gave the expected answer inside, the
// sandbox still answers afterwards, and nothing of it is left outside. An exit
// code alone proves nothing.
//
// The hostile program is the folder probe, built for each run and put into
// the sandbox. The hostile guest of row 16 is a double in this package that
// speaks frames over a socket pair; no driver without isolation exists.
//
// Limits and durations are small so that an attempt takes seconds. Bounds on
// time are generous, because the machine may be busy: they tell "answers" from
// "hangs", never fast from slow.
//
// Files: env.go the driver under test and its surroundings, box.go one sandbox
// with shorthand, leak*.go what is left on the host, threat.go the list, row*.go
// the attempts, suite*.go the conformance suite, hostile.go the guest double,
// part.go the processes that a row kills or confines.
package sandboxtest
