// Package blob keeps bytes by key, in a folder or in an S3 bucket.
//
// It knows no owner and no name a client gave: keys are made by its callers from random text. It
// imports no other package of this module.
//
// Invariants:
//   - Put returns only when the bytes are durable: in a folder the file and its parent are synced.
//   - A key is readable either whole or not at all, whatever moment the process dies at.
//   - A blob is never changed after Put.
//
// Files: blob.go (the store), folder.go, s3.go. blobtest is the conformance suite.
package blob
