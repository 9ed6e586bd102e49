// Package tenant knows who calls: apps, their API keys, the tokens of their users, admin keys, and the one rule that says who
// may use an owned thing.
//
// It knows nothing about the things that are owned, and does not verify tokens: jwt does. It imports wire, db, audit and jwt.
//
// Invariants:
//   - Every owned row has the columns owner_app, owner_user and owner_scope, and is read through
//     Caller.Where, the same rule as Caller.MayUse in SQL. No scope ever crosses an app.
//   - Keys are stored as SHA-256 of a 256-bit random value and shown once. Looking up the hash takes the
//     same time whatever the key, so nothing is compared byte by byte. Proofs of apps are compared with hmac.Equal.
//   - An unknown, revoked or expired key and a key of a disabled app answer the same 401. So do all tokens that are not taken:
//     why stands in the audit.
//   - A user is <issuer id>/<subject>, and an issuer's id never passes to another issuer. A token of ours for another issuer's
//     subject keeps both, and ends with that issuer and with the token that it was exchanged from.
//   - A token is believed after its issuer's one algorithm and key verified it, and names no key that was not known before.
//   - Everything kept by what clients send is bounded: limiter, fetched keys, rows of users (600 new ones of an app
//     a minute, of which idle ones are swept).
//   - What is read and then written is locked in between, first lockOldestApp where it matters to all, then lockApp.
//
// Files: owner.go (Owner, Caller, the rule), auth.go (Authenticate), tenant.go (App, Key, names and limits), service.go (apps),
// keys.go (keys); issuer_set.go (whose tokens are taken), signing.go and token.go
// (our own), identity.go (proofs of apps), user.go, remember.go (which users are kept; deletion), ratelimit.go; http.go, http_token.go, http_admin.go; store.go (rows, the rule
// in SQL), store_identity.go, store_user.go.
package tenant
