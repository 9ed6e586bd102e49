// Package wire is how every endpoint speaks: the error type and its body, JSON in and out, list
// cursors, SSE frames, multipart uploads, ids, times, the request id, and the adapter that turns a
// function returning an error into an http.Handler.
//
// It knows no tenant, no database and no product rule, and imports no other package of this module.
//
// Invariants:
//   - Only Handler and Mux write error bodies. Every answer carries a request-id header, and every
//     error body repeats it.
//   - An error that is not a *Error becomes a fixed sentence with status 500, or 529 if a full disk is
//     its cause; its text is logged and never sent.
//   - A response that has started can no longer become an error body. Handler then cuts the
//     connection, so that a client never takes a truncated answer for a whole one.
//
// Files: error.go (types, constructors, body), handler.go (adapter, request id), mux.go (404 and 405
// in our shape), body.go (reading with a limit), checkjson.go (lossless checks), json.go and shape.go (strict
// structs), multipart.go and disposition.go (uploads), stream.go (SSE), page.go (cursors), id.go,
// query.go, time.go, beta.go, build.go (which build answers).
package wire
