// Package audit keeps who was refused what, and who changed what, for operators and for the apps themselves.
//
// It knows nothing about who may read it and what the events mean: those who write say it in plain texts. It imports wire
// and db.
//
// Invariants:
//   - No credential, no file content and no text that an unknown client sent is written. Writers name reasons, not values.
//   - Write never waits. Rows reach the database within a second and at Close; after a crash the last second may be missing.
//   - What an attacker can cause is bounded, and at nobody else's cost. Equal events of an hour are one row with a count and the
//     time of the last. Room, in memory and in the table, is given by source (the app; the issuer of a user of no app; nobody)
//     and kind of event: who causes many rows loses his own. What finds no room is counted in a row of its own.
//
// One goroutine, from Start to Close. Files: audit.go, recent.go (what waits, and its shares), store.go.
package audit
