// Package file is the Files API: uploads from callers and outputs made in containers, their names,
// types, expiry and download rule.
//
// It does not know what a container or a message is. It imports wire, db, tenant and blob.
//
// Invariants:
//   - Bytes are durable before their row is inserted, and the row gives them up before they are deleted.
//     A crash in between leaves a blob without a row, which Sweep removes, never a row without bytes.
//   - Reads check the clock; the sweeper only frees space.
//   - A deleted row stays as a tombstone, so that an id is never reused and replayed history that
//     quotes it can be told from history that quotes a foreign id.
//   - An unknown, foreign or deleted id has one answer, and costs the same single read.
//
// Files: file.go (types, rules), name.go, mime.go, service.go, upload.go, authorize.go, list.go,
// sweep.go, http.go, gateway.go (what
// differs under the gateway's prefix), download.go, shape.go, store.go.
package file
