package container

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/blob"
	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// A workspace that nobody has used for PackAfter is moved from its image to a blob, and back at its next use. The row
// decides which of the two is the workspace: with a pack key it is the blob, without one the image. Each move makes the
// new form durable, changes the row, and only then removes the old form, so that a crash between any two steps leaves
// the one that the row names, and at worst the other beside it:
//
//	pack:    image ── blob written ── row names the blob ── image removed
//	unpack:  blob ─── image written ── row names the image ── blob removed
//
// An image beside its blob is removed at the next start or use, a blob that no row names by sweepBlobs.

const (
	packPrefix = "workspaces/"
	// packsEvery is the pace of packing; packBatch is what one pass takes on.
	packsEvery = time.Minute
	packBatch  = 200
	// packRetry is how long a workspace that could not be packed is left alone; maxPackFails of them end a pass.
	packRetry    = 10 * time.Minute
	maxPackFails = 5
	// orphanAge keeps a blob whose row is about to be written from the sweep; blobsEvery is the pace of that sweep.
	orphanAge  = time.Hour
	blobsEvery = time.Hour
	// keepLost is how long the blob of a container is kept that was found damaged, for a person to look at.
	keepLost = 7 * 24 * time.Hour
)

const defaultPackAfter = time.Hour

// Steps of packing at which tests let it end as a crash would.
const (
	stepPackBlob    = "pack: blob written"
	stepPackRow     = "pack: row written"
	stepUnpackImage = "unpack: image written"
	stepUnpackRow   = "unpack: row written"
)

func (s *Service) step(name string) error {
	if s.crash == nil {
		return nil
	}
	return s.crash(name)
}

// packer is what the packing of one service remembers between passes.
type packer struct {
	mu    sync.Mutex // held during a pass
	later map[ID]time.Time
}

// errWanted ends the packing of a workspace that somebody wants to use.
var errWanted = errors.New("the container is wanted")

// sweepPacks is one pass over the containers of this instance: workspaces that were not used for PackAfter are packed.
// A request that wants one of them meanwhile does not wait for it. The background loop calls it.
func (s *Service) sweepPacks(ctx context.Context) error {
	after := cmp.Or(s.PackAfter, defaultPackAfter)
	if after < 0 || s.Blobs == nil {
		return nil
	}
	s.packer.mu.Lock()
	defer s.packer.mu.Unlock()
	now := s.now()
	ids, err := packable(ctx, s.DB, s.Instance, now.Add(-after))
	if err != nil {
		return err
	}
	for id, at := range s.packer.later {
		if !now.Before(at) {
			delete(s.packer.later, id)
		}
	}
	var errs []error
	for _, id := range ids {
		if _, wait := s.packer.later[id]; wait {
			continue
		}
		if ctx.Err() != nil || len(errs) >= maxPackFails {
			break
		}
		err := s.pack(ctx, id, now.Add(-after))
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("pack container %s: %w", id, err))
		if s.packer.later == nil {
			s.packer.later = make(map[ID]time.Time)
		}
		s.packer.later[id] = now.Add(packRetry)
	}
	return errors.Join(errs...)
}

// pack moves the workspace of one container to a blob, if it is still unused.
func (s *Service) pack(ctx context.Context, id ID, before time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v := s.tryTurn(id, func() { cancel(errWanted) })
	if v == nil {
		return nil
	}
	defer s.endTry(v)
	if v.sandbox() != nil || v.ws != nil {
		return nil // about to be put away
	}
	defer context.AfterFunc(v.ended, func() { cancel(context.Cause(v.ended)) })()
	c, err := find(ctx, s.DB, id)
	if err != nil {
		return err
	}
	if c.State != StateActive || c.Home != s.Instance || !c.hasWorkspace || c.packed() || c.LastUsedAt.After(before) || c.Expired(s.now()) {
		return nil // changed since it was listed
	}
	began := time.Now()
	key := packPrefix + wire.NewID("ws")
	info, err := s.putPack(ctx, id, key)
	if err != nil && ctx.Err() != nil {
		return nil // somebody wants the container, it ends, or the server does
	}
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := s.step(stepPackBlob); err != nil {
		return err
	}
	err = setPacked(ctx, s.DB, c, key, info)
	if errors.Is(err, db.ErrStale) {
		return s.Blobs.Delete(ctx, key) // deleted meanwhile
	}
	if err != nil {
		return err // perhaps it was written: the sweep knows
	}
	if err := s.step(stepPackRow); err != nil {
		return err
	}
	s.log().InfoContext(ctx, "workspace packed", "container_id", id, "size_bytes", info.Size, "took", time.Since(began))
	return errors.Join(s.Workspaces.Remove(string(id)), s.dropSnapshot(id))
}

// putPack streams the image into the blob store.
func (s *Service) putPack(ctx context.Context, id ID, key string) (blob.Info, error) {
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		_ = w.CloseWithError(s.Workspaces.Pack(ctx, string(id), w)) // it never fails
	}()
	info, err := s.Blobs.Put(ctx, key, r)
	_ = r.CloseWithError(io.ErrClosedPipe) // it never fails; a packing that still writes ends
	<-packed
	return info, err
}

// unpack brings the workspace of a packed container back to an image, and the container to this instance. Whoever comes
// second, here or on another server, finds the row changed.
func (s *Service) unpack(ctx context.Context, c *Container) error {
	began := time.Now()
	if err := s.clear(c.ID); err != nil {
		return err
	}
	if err := s.getPack(ctx, c, c.ID); err != nil {
		return err
	}
	if err := s.step(stepUnpackImage); err != nil {
		return err
	}
	key := c.packKey
	err := setUnpacked(ctx, s.DB, c, s.Instance)
	if errors.Is(err, db.ErrStale) {
		return errors.Join(movedError(), s.Workspaces.Remove(string(c.ID)))
	}
	if err != nil {
		return err
	}
	c.Home, c.packKey, c.packSHA256 = s.Instance, "", ""
	if err := s.step(stepUnpackRow); err != nil {
		return err
	}
	if err := s.Blobs.Delete(ctx, key); err != nil {
		// The image is the workspace now; the sweep removes what no row names.
		s.log().WarnContext(ctx, "remove packed workspace", "container_id", c.ID, "error", err)
	}
	s.log().InfoContext(ctx, "workspace unpacked", "container_id", c.ID, "took", time.Since(began))
	return nil
}

// getPack makes the image of an id from the packed workspace of c. sandbox.ErrDamaged if it is not what was packed.
func (s *Service) getPack(ctx context.Context, c *Container, id ID) (err error) {
	if s.Blobs == nil {
		return fmt.Errorf("unpack container %s: there is no blob store", c.ID)
	}
	r, err := s.Blobs.Open(ctx, c.packKey, 0, -1)
	if err != nil {
		return fmt.Errorf("unpack container %s: %w", c.ID, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	sum := sha256.New()
	body := io.TeeReader(r, sum)
	return s.Workspaces.Unpack(ctx, string(id), body, func() error {
		if _, err := io.Copy(io.Discard, body); err != nil { // what is behind the end belongs to the sum
			return err
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != c.packSHA256 {
			return fmt.Errorf("%w: the packed bytes have the checksum %s and not %s", sandbox.ErrDamaged, got, c.packSHA256)
		}
		return nil
	})
}

// movedError answers a turn whose container another server of the installation has just taken.
func movedError() error {
	return wire.Overloaded(time.Second, "The container is being opened by another server of this installation; send the request again.")
}

// tryTurn takes the turn of a container for background work if it is free; nil if it is not. wanted is called when
// somebody waits for the turn.
func (s *Service) tryTurn(id ID, wanted func()) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.entry(id)
	if !v.try() {
		return nil
	}
	v.wanted = wanted
	return v
}

// endTry gives the turn of background work back.
func (s *Service) endTry(v *live) {
	s.mu.Lock()
	v.wanted = nil
	s.mu.Unlock()
	if v.sandbox() == nil && v.ws == nil {
		s.forget(v)
	}
	v.put()
}

// dropPack removes the blob of a container that has ended.
func (s *Service) dropPack(ctx context.Context, c *Container) error {
	if !c.packed() {
		return nil
	}
	if s.Blobs == nil {
		return fmt.Errorf("remove packed workspace of container %s: there is no blob store", c.ID)
	}
	return s.Blobs.Delete(ctx, c.packKey)
}

// sweepBlobs removes packed workspaces that no row names: what a crash left. It reads all names in the store.
func (s *Service) sweepBlobs(ctx context.Context) error { return s.sweepBlobsOlder(ctx, orphanAge) }

func (s *Service) sweepBlobsOlder(ctx context.Context, age time.Duration) error {
	if s.Blobs == nil {
		return nil
	}
	now := time.Now()
	var old []string
	var errs []error
	flush := func() error {
		kept, err := packsNamed(ctx, s.DB, old, s.now().Add(-keepLost))
		if err != nil {
			return err
		}
		for _, key := range old {
			if kept[key] {
				continue
			}
			errs = append(errs, s.Blobs.Delete(ctx, key))
			s.log().InfoContext(ctx, "packed workspace without a container removed", "blob_key", key)
		}
		old = old[:0]
		return nil
	}
	err := s.Blobs.List(ctx, packPrefix, func(e blob.Entry) error {
		if now.Sub(e.ModTime) < age {
			return nil
		}
		if old = append(old, e.Key); len(old) < 500 {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	return errors.Join(append(errs, err)...)
}

// runPacks is the background loop of packing. It is not that of the sandboxes, which must not wait for a disk.
func (s *Service) runPacks(ctx context.Context, done chan struct{}) {
	defer close(done)
	tick := time.NewTicker(max(min(packsEvery, cmp.Or(s.SweepEvery, packsEvery)*60), time.Millisecond))
	defer tick.Stop()
	var swept time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.sweepPacks(ctx); err != nil && ctx.Err() == nil {
			s.log().ErrorContext(ctx, "pack idle workspaces", "error", err)
		}
		if now := time.Now(); now.Sub(swept) >= blobsEvery {
			swept = now
			if err := s.sweepBlobs(ctx); err != nil && ctx.Err() == nil {
				s.log().ErrorContext(ctx, "sweep packed workspaces", "error", err)
			}
		}
	}
}
