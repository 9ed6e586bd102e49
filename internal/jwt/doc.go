// Package jwt verifies the tokens of users: one issuer, one algorithm, keys that were known before the token came. Why there is no JOSE
// library stands in docs/adr/017-own-token-verifier.md.
//
// It knows no app, no caller and no database. It imports wire, for strict JSON and for errors that name a setting.
//
// Invariants:
//   - Nothing of a token is believed before Verifier.Check: Parse takes apart, and its claims are text of whoever sent them.
//   - The algorithm is the issuer's. A token that names another is refused before a key is looked for.
//   - A token selects among keys that its issuer's Source has, and brings none: jwk, jku, x5u and x5c are not read.
//   - No member twice, no stray bit in base64url, whole seconds, exp always, five seconds of tolerance.
//   - Why a token was not taken is a Refusal, for the audit; clients are told nothing of it.
//
// Files: token.go (Parse, Claims, signatures), issuer.go (Issuer, its settings), verifier.go (Verifier, Static), remote.go (Remote: keys
// behind an address, fetched at most once a minute).
package jwt
