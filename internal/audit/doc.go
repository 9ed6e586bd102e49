// Package audit keeps who was refused what, and who changed what, for operators and for the apps themselves.
//
// It knows nothing about who may read it and what the events mean: those who write say it in plain texts. It imports wire
// and db.
//
// Invariants:
//   - No credential, no file content and no text that an unknown client sent is written. Writers name reasons, not values.
//   - Write never waits. Rows reach the database within a second and at Close; after a crash the last second may be missing.
//   - What an attacker can cause is bounded: equal events of one flush are one row with a count, Pending bounds what waits, what
//     does not fit is counted in a row of its own, and Sweep bounds age and number.
//
// One goroutine, from Start to Close. Files: audit.go, store.go.
package audit
