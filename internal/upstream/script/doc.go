// Package script is the scripted model: an upstream that does what the fenced
// blocks of the newest user message say, in this process and without a model.
//
// It serves demonstrations, other people's CI and our own tests. It knows no
// tenant and runs nothing itself; like any model it only asks for tools.
//
// Invariants:
//
//   - The answer depends on the request alone. The one exception is the action
//     error with times=N, which is counted per script.
//   - It learns how far it is by counting the tool results after the script.
//   - Tokens are bytes divided by four, rounded up.
//
// The grammar is in docs/script.md. Files: fence.go (CommonMark fences),
// action.go (info strings), plan.go (turns), conversation.go (where the script
// stands), answer.go (the message of a turn), server.go (HTTP), transport.go (a
// http.RoundTripper in front of the server).
package script
