// Package attack is the escape suite: Threats lists one real attempt for each row of docs/threat-model.md, and Attack makes
// it against a running sandbox of any driver. It ships with the product: `airlock doctor --attack` runs it on the machine
// that serves, and the tests of sandboxtest run the same attempts on every driver.
//
// It knows a driver only by sandbox.Driver and reads the host beside it: an attempt counts as held when the kernel gave the
// expected answer inside, the sandbox still answers afterwards, and nothing of it is left outside. An exit code alone
// proves nothing. It knows nothing of tests: it returns errors and says what did not hold.
//
// The hostile program is the folder probe, built by `make guest` into the folder bin and embedded; without it an attempt
// ends with ErrNotBuilt. The hostile guest of row 16 is a double in this package that speaks frames over a socket pair; no
// driver without isolation exists.
//
// Limits and durations are small so that an attempt takes seconds. Bounds on time are generous, because the machine may be
// busy: they tell "answers" from "hangs", never fast from slow.
//
// Files: env.go the driver under attack and its surroundings, box.go one sandbox with shorthand, probe.go the hostile
// program, leak.go what is left on the host, threat.go the list, run.go all of it with a report, row_*.go the attempts, hostile.go the guest double, part.go
// the processes that a row kills or confines.
package attack
