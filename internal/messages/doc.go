// Package messages serves POST /v1/messages, count_tokens and models: it checks
// a request, loops over an upstream and the code execution tools, and relays one
// single message to the client, streamed or not.
//
// It refuses to know how a sandbox works (codeexec, container) and how an
// upstream is reached (upstream).
//
// Invariants:
//
//   - One response is one message: one message_start, contiguous block indexes
//     from 0, one message_delta, one message_stop, whatever number of upstream
//     answers it took.
//   - No 200 before the upstream's first event (or before the sandbox is open,
//     when calls that were deferred run first). Until then every fault has its
//     own HTTP status.
//   - The streamed and the plain form come from the same events, so they add up
//     to the same message.
//   - A request without the code execution tool goes to the upstream and back
//     without loss.
//   - A container's id is shown only after its row exists, and its turn ends
//     when the response ends, also when the client has gone.
//
// Goroutines: one per streamed response writes pings; the handler waits for it.
//
// Files: messages.go (Service), http.go, request.go (the checked request),
// validate.go, functions.go (tools that code may call), pairing.go (calls and
// results in history), pending.go (code that waits for results), tools.go and
// history.go (what the upstream is shown), files.go (uploads and inlined files),
// loop.go, relay.go (frames), sink.go (the client's end), usage.go,
// place.go (the container as the loop sees it), flow.go (what may be combined),
// gateway.go (what a user's request is refused for and changed by).
package messages
