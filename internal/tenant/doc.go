// Package tenant knows who calls: apps, their API keys, the admin key, and the one rule that says who
// may use an owned thing.
//
// It knows nothing about the things that are owned. It imports wire and db.
//
// Invariants:
//   - Every owned row has the columns owner_app, owner_user and owner_scope, and is read through
//     Caller.Where, the same rule as Caller.MayUse in SQL. No scope ever crosses an app.
//   - Keys are stored as SHA-256 of a 256-bit random value and shown once. Looking up the hash takes the
//     same time whatever the key, so nothing is compared byte by byte.
//   - An unknown, revoked or expired key and a key of a disabled app answer the same 401.
//
// Files: owner.go (Owner, Caller, the rule), tenant.go (App, Key, names and limits), service.go (apps),
// keys.go (keys, Authenticate), http.go, store.go (rows, the rule in SQL).
package tenant
