package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Upload stores a file of the caller. Either the file is whole and durable, or nothing is left.
func (s *Service) Upload(ctx context.Context, c tenant.Caller, p UploadParams) (*File, error) {
	if err := checkExpiry(p.ExpiresIn); err != nil {
		return nil, err
	}
	st, err := s.stageUpload(ctx, p, s.maxBytes())
	if err != nil {
		return nil, err
	}
	return s.finishUpload(ctx, c, st, p.ExpiresIn)
}

// CreateOutput stores a file made in a container, for the owner of that container. Names are made to fit.
func (s *Service) CreateOutput(ctx context.Context, o tenant.Owner, p OutputParams) (*File, error) {
	st, err := s.stage(ctx, outputName(p.Filename), "", p.Body, s.maxBytes())
	if err != nil {
		return nil, err
	}
	st.f.Origin, st.f.ContainerID, st.f.CallID = OriginOutput, p.ContainerID, p.CallID
	return s.commit(ctx, o, st, nil)
}

// staged is a file whose bytes are durable and whose row is not yet there.
type staged struct {
	f  *File
	at time.Time // real time, as the store's
}

// stageUpload checks name and type before a byte is stored.
func (s *Service) stageUpload(ctx context.Context, p UploadParams, limit int64) (*staged, error) {
	name, err := cleanName(p.Filename)
	if err != nil {
		return nil, err
	}
	sent, err := parseMIME(p.MIME)
	if err != nil {
		return nil, err
	}
	st, err := s.stage(ctx, name, sent, p.Body, limit)
	if errors.Is(err, ErrTooLarge) {
		return nil, tooLarge(limit)
	}
	if err != nil {
		return nil, err
	}
	st.f.Origin = OriginUpload
	return st, nil
}

func tooLarge(limit int64) *wire.Error {
	return wire.TooLarge("file: larger than the limit of %s (%d bytes).", wire.FormatSize(limit), limit)
}

func (s *Service) finishUpload(ctx context.Context, c tenant.Caller, st *staged, expiresIn *int64) (*File, error) {
	f, err := s.commit(ctx, c.Owner(), st, expiresIn)
	if errors.Is(err, ErrQuota) {
		return nil, wire.Invalid("The storage of this app is full (%s). Delete files that are no longer needed.",
			wire.FormatSize(s.QuotaBytes)).WithCode("storage_quota_exceeded")
	}
	return f, err
}

// stage puts the bytes into the store, at most limit of them.
func (s *Service) stage(ctx context.Context, name, mimeType string, body io.Reader, limit int64) (*staged, error) {
	in := bufio.NewReaderSize(&limitedReader{r: body, left: limit, over: ErrTooLarge}, sniffBytes)
	if mimeType == "" {
		// An error here comes again at the first read of Put, which reports it.
		head, _ := in.Peek(sniffBytes)
		mimeType = detectMIME(name, head)
	}
	if name == "" {
		name = "unnamed" + extensionOf(mimeType)
	}
	id := wire.NewID("file")
	random := wire.RandomText()
	key := "files/" + random[len(random)-2:] + "/" + random
	info, err := s.Blobs.Put(ctx, key, in)
	if err != nil {
		return nil, fmt.Errorf("store file: %w", err)
	}
	return &staged{at: time.Now(), f: &File{
		ID: ID(id), Filename: name, MIME: mimeType, Size: info.Size, SHA256: info.SHA256, blobKey: key,
	}}, nil
}

// commit inserts the row. When there is certainly none, the bytes are dropped; when the database did not say how a commit
// ended, there may be a row that needs them, and the sweep finds out.
func (s *Service) commit(ctx context.Context, o tenant.Owner, st *staged, expiresIn *int64) (*File, error) {
	f := st.f
	f.Owner = o
	f.CreatedAt = wire.MicrosOf(s.now()).Time()
	f.ExpiresAt = nil
	if expiresIn != nil {
		at := f.CreatedAt.Add(time.Duration(*expiresIn) * time.Second)
		f.ExpiresAt = &at
	}
	err := s.insert(ctx, st)
	switch {
	case errors.Is(err, errUnknown):
		return nil, err
	case err != nil:
		s.dropBlob(ctx, f.blobKey)
		return nil, err
	}
	return f, nil
}

// errUnknown is an insert that may or may not have been committed.
var errUnknown = errors.New("the commit did not succeed for certain")

func (s *Service) insert(ctx context.Context, st *staged) error {
	if time.Since(st.at) > s.orphanAge()/2 {
		// The sweeper could take the bytes for an orphan while the row is being inserted.
		return wire.Invalid("body: the upload took too long to end after the file was sent.")
	}
	inserted := false
	err := s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		if s.QuotaBytes > 0 {
			used, err := lockUsage(ctx, s.DB, tx, st.f.Owner.AppID, s.now().UnixMicro())
			if err != nil {
				return err
			}
			if used+st.f.Size > s.QuotaBytes {
				return ErrQuota
			}
		}
		err := insertFile(ctx, tx, rowOf(st.f))
		inserted = err == nil
		return err
	})
	switch {
	case err != nil && inserted:
		return fmt.Errorf("record file: %w: %w", errUnknown, err)
	case err != nil:
		return fmt.Errorf("record file: %w", err)
	}
	return nil
}

// discard drops what was staged for an upload that is refused after all.
func (s *Service) discard(ctx context.Context, st *staged) {
	if st != nil {
		s.dropBlob(ctx, st.f.blobKey)
	}
}

// limitedReader fails with over when there is more than allowed, where io.LimitReader would cut silently. An error
// stays: bufio.Reader.Peek forgets the one it met, and the file would end there as if it were whole.
type limitedReader struct {
	r    io.Reader
	left int64
	over error
	err  error
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if int64(n) > l.left {
		n, err = 0, l.over
	}
	l.left -= int64(n)
	l.err = err
	return n, err
}
