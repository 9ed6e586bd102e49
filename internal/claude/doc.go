// Package claude holds the shapes of the Messages API as data: a lossless JSON
// tree, the request, its content blocks, the events of a stream and the message
// they add up to.
//
// It refuses to know who calls, which upstream answers and what a tool does.
//
// Invariants:
//
//   - Bytes in are bytes out: encoding a parsed tree gives the input without
//     insignificant white space. Unknown members, member order, number text and
//     string escapes survive; a signature over a thinking block stays valid.
//   - A tree that was parsed has no duplicate members, no invalid UTF-8, no
//     trailing data and no nesting beyond MaxDepth, so two readers can never
//     disagree about its meaning.
//   - Member names are compared after decoding, so "file\u005fid" is file_id.
//
// Files: tree.go (Node), parse.go (bytes to Node), request.go (Messages
// request), references.go (file and container ids), sse.go (frames),
// accumulate.go (stream to message).
package claude
