// Package sandboxtest is the conformance suite, Run: what callers of a sandbox may rely on with every driver. Its own tests
// run it, and the attempts of package attack, on the drivers of this repository.
//
// The attempts are no part of this package because they ship: a package whose name ends in "test" is imported by tests
// alone, and the attempts run on the machines of people who serve.
//
// Files: suite*.go the rules, bench_test.go what a call of a tool costs, native_test.go the drivers under test, cases_test.go inputs that broke other systems,
// threatmodel_test.go the table of docs/threat-model.md against the attempts, leftover what killed test runs left.
package sandboxtest
