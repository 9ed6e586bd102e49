package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// syncLimit is how long the end of a turn, and the background loop, wait for a disk.
const syncLimit = 10 * time.Second

// saving is one sync of a workspace. The kernel offers no way to call it off, so whoever has waited long enough leaves it
// behind; detaching the workspace waits for it.
type saving struct {
	done chan struct{} // closed at the end, after err was set
	err  error
}

// syncLive makes what a turn wrote durable. The turn's answer does not depend on it; if it fails, the next use is told
// (Lease.Unsaved, Service.Use).
func (s *Service) syncLive(ctx context.Context, v *live) {
	ctx, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	if err := s.save(ctx, v); err != nil {
		s.log().WarnContext(ctx, "sync workspace", "container_id", v.id, "error", err)
	}
}

// save returns when everything written before the call is on disk. The caller holds the turn.
func (s *Service) save(ctx context.Context, v *live) error {
	for {
		job, current := s.saveOnce(ctx, v)
		if job == nil {
			return nil
		}
		select {
		case <-job.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if current {
			return job.err
		}
	}
}

// saveOnce gives the sync that runs, or begins one if there is something to write; current says that it covers every
// write so far.
func (s *Service) saveOnce(ctx context.Context, v *live) (job *saving, current bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.saving != nil:
		return v.saving, !v.dirty
	case v.ws == nil || !v.dirty:
		return nil, true
	}
	job, ws := &saving{done: make(chan struct{})}, v.ws
	v.saving, v.dirty = job, false
	go func() {
		defer close(job.done)
		if job.err = s.syncDisk(context.WithoutCancel(ctx), ws); job.err != nil {
			s.noteUnsaved(ctx, v, job.err)
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.saving = nil
		if job.err != nil {
			v.dirty = true
		}
	}()
	return job, true
}

// CodeUnsaved is the code of the answer to the first use of a container after a sync of its workspace has failed.
const CodeUnsaved = "sandbox_files_not_saved"

const unsavedText = "the server's disk did not take the last changes to the files in this container; some of them may be lost or damaged"

// unsaved is the word about a sync that failed.
type unsaved struct {
	err   error // nil = none
	noted bool  // in the row, so that whoever has the container next finds it there
}

// noteUnsaved remembers that the next use must be told. What was not saved may have been acknowledged long before, so nobody who goes
// on may be left to believe in it, on whatever server and after whatever restart. Only a server that is killed before the
// sync has failed tells nobody.
func (s *Service) noteUnsaved(ctx context.Context, v *live, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), syncLimit)
	defer cancel()
	// The row comes first: as soon as the word is in memory it can be given, which clears the row.
	noted := setUnsaved(ctx, s.DB, v.id, true)
	if noted != nil {
		s.log().ErrorContext(ctx, "note unsaved files", "container_id", v.id, "error", noted)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.unsaved = unsaved{err, noted == nil}
}

// inherit takes over what the row says of a sync that failed before this process knew the container.
func (v *live) inherit(c *Container) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if c.unsaved && v.unsaved.err == nil {
		v.unsaved = unsaved{errors.New("a sync failed before the container came here"), true}
	}
}

// takeUnsaved gives the error of a sync that failed, once.
func (l *Lease) takeUnsaved(ctx context.Context) error {
	v := l.live
	v.mu.Lock()
	word := v.unsaved
	v.unsaved = unsaved{}
	v.mu.Unlock()
	if word.noted {
		if err := setUnsaved(ctx, l.s.DB, v.id, false); err != nil { // then it is told twice
			l.s.log().WarnContext(ctx, "note told of unsaved files", "container_id", v.id, "error", err)
		}
	}
	return word.err
}

// unsavedError answers the first use after such a sync.
func (l *Lease) unsavedError(ctx context.Context) error {
	err := l.takeUnsaved(ctx)
	if err == nil {
		return nil
	}
	e := wire.Internal(fmt.Errorf("workspace %s was not saved: %w", l.live.id, err)).WithCode(CodeUnsaved)
	e.Message = strings.ToUpper(unsavedText[:1]) + unsavedText[1:] + ". Nothing of this request has run: look at the files and send it again."
	e.NoRetry = true
	return e
}

// Unsaved is a note for the model, once after the workspace could not be written to disk; empty otherwise.
func (l *Lease) Unsaved(ctx context.Context) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil || l.takeUnsaved(ctx) == nil {
		return ""
	}
	return unsavedText
}

func (s *Service) syncDisk(ctx context.Context, ws *sandbox.Workspace) error {
	if s.TrimBallast != nil {
		s.TrimBallast(ctx)
	}
	if s.sync != nil {
		return s.sync(ctx, ws)
	}
	return ws.Sync(ctx)
}

// markDirty notes that the workspace has something to write.
func (v *live) markDirty() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dirty = true
}
