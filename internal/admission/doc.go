// Package admission decides when memory carries another sandbox: a start waits here, in turns between the apps, until it may
// begin or is refused.
//
//	Enter ──► memory carries it ─────────────────────────────► Grant ──► started, counted by Sandboxes ──► Leave
//	   │                                                         ▲
//	   └─► waits in the line of its app ── a sandbox ended, ─────┘
//	            │        │                 one could be evicted
//	            │        └── Queue.Wait is over ──► 529
//	            └── the request is gone, the server closes
//
// It knows no container, no turn and no disk: what a sandbox uses, and which can be missed, is asked of Sandboxes, and memory
// is read by functions that are given to it.
//
// Invariants:
//   - Whoever is admitted counts from then on, as a start until Leave and as a sandbox after it.
//   - An app with many starts that wait delays another app's by one of its own at most.
//   - Nothing that hangs holds up the queue: sandboxes are ended beside it.
//
// Goroutines: one while somebody waits, and one for each sandbox that is being ended. Close waits for both.
package admission
