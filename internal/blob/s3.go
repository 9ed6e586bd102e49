package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob" // the s3:// scheme
	"gocloud.dev/gcerrors"
)

// bucket keeps blobs in S3, through gocloud.dev. The service makes an object visible only when its upload
// is complete, which is what commit needs.
type bucket struct {
	b *blob.Bucket
}

func openS3(ctx context.Context, where string) (*bucket, error) {
	b, err := blob.OpenBucket(ctx, where)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	return &bucket{b: b}, nil
}

type bucketWriter struct {
	*blob.Writer
	cancel context.CancelFunc
}

func (b *bucket) create(ctx context.Context, key string) (writer, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := b.b.NewWriter(ctx, key, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		cancel()
		return nil, err
	}
	return &bucketWriter{Writer: w, cancel: cancel}, nil
}

func (w *bucketWriter) commit() error {
	defer w.cancel()
	return w.Close()
}

// abort closes the writer after its context has ended, which makes it drop the parts sent so far.
func (w *bucketWriter) abort() {
	w.cancel()
	_ = w.Close() // it reports the cancellation
}

func (b *bucket) open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if length == 0 {
		// An empty range cannot be asked for over HTTP; only the existence is of interest.
		ok, err := b.b.Exists(ctx, key)
		if err == nil && !ok {
			err = ErrNotFound
		}
		if err != nil {
			return nil, err
		}
		return io.NopCloser(eof{}), nil
	}
	r, err := b.b.NewRangeReader(ctx, key, offset, length, nil)
	if err != nil {
		return nil, bucketError(err)
	}
	return r, nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

func (b *bucket) remove(ctx context.Context, key string) error {
	return bucketError(b.b.Delete(ctx, key))
}

func (b *bucket) list(ctx context.Context, prefix string, fn func(Entry) error) error {
	it := b.b.List(&blob.ListOptions{Prefix: prefix})
	for {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list bucket: %w", err)
		}
		if err := fn(Entry{Key: o.Key, Size: o.Size, ModTime: o.ModTime}); err != nil {
			return err
		}
	}
}

// clean has nothing to do: the parts of an upload that was never completed are no objects, and the bucket's
// lifecycle rule for incomplete uploads frees them.
func (b *bucket) clean(context.Context) error { return nil }

func (b *bucket) ping(ctx context.Context) error {
	ok, err := b.b.IsAccessible(ctx)
	if err == nil && !ok {
		err = errors.New("the bucket does not exist or may not be read")
	}
	return err
}

func (b *bucket) close() error { return b.b.Close() }

func bucketError(err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return ErrNotFound
	}
	return err
}

func randomText() string { return rand.Text() }
