// Package upstream calls the Messages endpoints that answer our requests:
// Anthropic, any other server of POST /v1/messages, and the scripted model.
//
// It refuses to know tenants, containers and tools; it sends the body it is
// given and hands back the answer.
//
// Invariants:
//
//   - A request is repeated only before the first byte of its answer was used,
//     and only for 429, 529, 5xx and connections that were not made.
//   - The request is built from an allow list of headers; nothing of the
//     client's credentials goes on.
//   - What an upstream says about our own credentials, its HTML pages and any
//     other body it sends outside an error message never reaches a client.
//
// Files: upstream.go (Config, Set), route.go (model patterns), endpoint.go (one
// upstream), stream.go (an open answer), retry.go, errors.go. The scripted model
// is in script/.
package upstream
