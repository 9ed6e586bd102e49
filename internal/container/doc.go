// Package container keeps containers: the place with an id and an expiry in which a model's code runs.
//
// A container is a row, a workspace image on disk, and at times a live sandbox. The row and the image are the container;
// the sandbox is only how it runs at the moment. Files survive every change of sandbox; processes and interpreter
// variables survive where the driver can keep them (snapshot.go), and where they did not, whoever uses the container
// afterwards is told so (Lease.REPLLost).
//
//	            first use                 30 s idle            10 min idle
//	(no sandbox) ────────► running sandbox ────────► frozen ─────────────┐
//	     ▲                    │   ▲                    │ next use        │ destroyed, workspace stays
//	     │                    │   └────────────────────┘                 │
//	     │◄───────────────────┘ died (memory, crash): replaced at next use│
//	     └────────────────────────────────────────────────────────────────┘
//
//	image on disk ── 1 h unused ──► packed in the blob store ── next use ──► image on disk
//
//	row: active ──► expired (idle or too old; the image is removed, the id keeps answering "expired")
//	     active ──► lost    (the image is not there any more)
//	     active ──► deleting ──► deleted (answers like an id that never was)
//
// Invariants:
//   - A row exists before its id is shown to anybody.
//   - One turn at a time: a Lease is exclusive, by a lock in this process and by the home column, which names the
//     instance whose disk holds the workspace. A row is never worked on by an instance that is not its home, but for a
//     packed workspace, which lies on nobody's disk: the instance that unpacks it becomes its home (pack.go).
//   - Every read of a row has the caller's access rule in its where clause.
//   - Expiry is stored, absolute, and moves only when a turn begins or ends; it never passes the maximum age.
//   - A parked cell keeps its sandbox until its time is over: nothing but the end of its container, of the sandbox or of the
//     service, or another cell, ends it before.
//   - The host opens no path inside a workspace: all file work is done by the guest.
//
// Goroutines: five background loops, between Start and Stop (sync, freeze, destroy; expire, finish what failed; write
// accounts; end who fills a full disk; pack); one per container that the first two work on, so that one that hangs does not
// stop them, and a watchdog that reports the first when it makes no progress; one per sync of a workspace that is at work, which
// the detaching of that workspace waits for. A cell that may be parked has one until it ends, and one for a turn of its own when
// its time is over. Close has a few that keep variables. It waits for all of them.
//
// It is larger than a package should be. What is left here shares the turn and the mutex of one entry (live.go), and a cut
// would have to export both.
//
// Files:
//   - container.go types and pure rules; service.go create, get, list, delete; fork.go copies; recover.go what a start does with
//     the rows of the run before
//   - lease.go the exclusive turn; inputs.go files in; export.go files out; sync.go what makes a turn durable
//   - live.go the sandboxes behind containers; claim.go where a new one comes from, the pool or the driver; gone.go what is said
//     of one that ended; snapshot.go variables that outlive it; parked.go cells that outlive their turn
//   - loops.go the background; idle.go rest; expiry.go the end; pack.go workspaces that wait as blobs; diskfull.go a full disk
//   - concurrency.go how many work at once; evict.go who is ended when memory does not carry another (internal/admission)
//   - execution.go what each call used (internal/usage); http.go; store.go, store_pack.go
package container
