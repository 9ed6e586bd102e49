package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// bucket keeps blobs in S3. The service makes an object visible only when its upload is complete, which is what commit
// needs.
type bucket struct {
	c            minio.Core
	name, prefix string
	transport    *http.Transport
}

// partSize is what a writer collects before it sends it: less goes up in one request, more in parts, of which S3 takes
// 10,000 for a blob.
const partSize = 8 << 20

// abortLimit is how long the end of a failed upload may take.
const abortLimit = 30 * time.Second

// s3Options are the parameters that an s3:// URL may have.
var s3Options = []string{"anonymous", "endpoint", "prefix", "region", "use_path_style"}

// openS3 opens the bucket of s3://NAME?endpoint=URL&region=REGION&prefix=TEXT&use_path_style=true. Without an endpoint it is
// Amazon's. Credentials come from the AWS_ variables, the shared file, or the machine's role; anonymous=true asks for none.
func openS3(_ context.Context, where string) (*bucket, error) {
	u, err := url.Parse(where)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	q := u.Query()
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(s3Options, name) {
			return nil, fmt.Errorf("open bucket: unknown parameter %q; there are %s", name, strings.Join(s3Options, ", "))
		}
	}
	if u.Host == "" {
		return nil, errors.New("open bucket: the URL names none: s3://NAME")
	}
	endpoint, err := url.Parse(cmp.Or(q.Get("endpoint"), "https://s3.amazonaws.com"))
	if err != nil || endpoint.Host == "" || (endpoint.Scheme != "http" && endpoint.Scheme != "https") || strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("open bucket: endpoint: %q is no http:// or https:// address without a path", q.Get("endpoint"))
	}
	anonymous, err := flag(q, "anonymous")
	if err != nil {
		return nil, err
	}
	pathStyle, err := flag(q, "use_path_style")
	if err != nil {
		return nil, err
	}
	o := &minio.Options{Secure: endpoint.Scheme == "https", Region: q.Get("region"), MaxRetries: 3}
	if pathStyle {
		o.BucketLookup = minio.BucketLookupPath
	}
	if !anonymous {
		o.Creds = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		})
	}
	transport, err := minio.DefaultTransport(o.Secure)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	o.Transport = transport
	c, err := minio.NewCore(endpoint.Host, o)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	return &bucket{c: *c, name: u.Host, prefix: q.Get("prefix"), transport: transport}, nil
}

func flag(q url.Values, name string) (bool, error) {
	if !q.Has(name) {
		return false, nil
	}
	on, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		return false, fmt.Errorf("open bucket: %s: %q is neither true nor false", name, q.Get(name))
	}
	return on, nil
}

// bucketWriter sends a blob of at most a part at commit, a larger one part by part as it comes.
type bucketWriter struct {
	b      *bucket
	ctx    context.Context //nolint:containedctx // that of the blob in the making, which ends with it
	key    string
	buf    bytes.Buffer
	upload string // its id; empty while all of it is in buf
	parts  []minio.CompletePart
}

var objectOptions = minio.PutObjectOptions{ContentType: "application/octet-stream"}

func (b *bucket) create(ctx context.Context, key string) (writer, error) {
	return &bucketWriter{b: b, ctx: ctx, key: b.prefix + key}, nil
}

func (w *bucketWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), partSize-w.buf.Len())
		w.buf.Write(p[:n])
		written, p = written+n, p[n:]
		if w.buf.Len() < partSize {
			continue
		}
		if err := w.send(); err != nil {
			return written, err
		}
	}
	return written, nil
}

// send uploads what was collected as the next part.
func (w *bucketWriter) send() (err error) {
	if w.upload == "" {
		if w.upload, err = w.b.c.NewMultipartUpload(w.ctx, w.b.name, w.key, objectOptions); err != nil {
			return err
		}
	}
	size := int64(w.buf.Len())
	part, err := w.b.c.PutObjectPart(w.ctx, w.b.name, w.key, w.upload, len(w.parts)+1, bytes.NewReader(w.buf.Bytes()), size, minio.PutObjectPartOptions{})
	if err != nil {
		return err
	}
	w.parts = append(w.parts, minio.CompletePart{
		PartNumber: part.PartNumber, ETag: part.ETag,
		ChecksumCRC32: part.ChecksumCRC32, ChecksumCRC32C: part.ChecksumCRC32C, ChecksumSHA1: part.ChecksumSHA1,
		ChecksumSHA256: part.ChecksumSHA256, ChecksumCRC64NVME: part.ChecksumCRC64NVME,
	})
	w.buf.Reset()
	return nil
}

func (w *bucketWriter) commit() error {
	if w.upload == "" {
		_, err := w.b.c.Client.PutObject(w.ctx, w.b.name, w.key, bytes.NewReader(w.buf.Bytes()), int64(w.buf.Len()), objectOptions)
		return err
	}
	if w.buf.Len() > 0 {
		if err := w.send(); err != nil {
			w.abort()
			return err
		}
	}
	if _, err := w.b.c.CompleteMultipartUpload(w.ctx, w.b.name, w.key, w.upload, w.parts, objectOptions); err != nil {
		w.abort()
		return err
	}
	return nil
}

// abort drops the parts sent so far. Those that it cannot drop are no object, and the bucket's lifecycle rule for incomplete
// uploads frees them.
func (w *bucketWriter) abort() {
	if w.upload == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortLimit)
	defer cancel()
	_ = w.b.c.AbortMultipartUpload(ctx, w.b.name, w.key, w.upload) // see above
}

func (b *bucket) open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if length == 0 {
		// An empty range cannot be asked for over HTTP; only the existence is of interest.
		if err := b.stat(ctx, key); err != nil {
			return nil, err
		}
		return http.NoBody, nil
	}
	var o minio.GetObjectOptions
	switch {
	case length > 0:
		o.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	case offset > 0:
		o.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	r, _, _, err := b.c.GetObject(ctx, b.name, b.prefix+key, o)
	if err != nil {
		return nil, bucketError(err)
	}
	return r, nil
}

func (b *bucket) stat(ctx context.Context, key string) error {
	_, err := b.c.StatObject(ctx, b.name, b.prefix+key, minio.StatObjectOptions{})
	return bucketError(err)
}

// remove asks first: S3 says of a key that it never had that it is gone.
func (b *bucket) remove(ctx context.Context, key string) error {
	if err := b.stat(ctx, key); err != nil {
		return err
	}
	return bucketError(b.c.RemoveObject(ctx, b.name, b.prefix+key, minio.RemoveObjectOptions{}))
}

func (b *bucket) list(ctx context.Context, prefix string, fn func(Entry) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what fills the channel ends with it
	for o := range b.c.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
		if o.Err != nil {
			return fmt.Errorf("list bucket: %w", o.Err)
		}
		if err := fn(Entry{Key: strings.TrimPrefix(o.Key, b.prefix), Size: o.Size, ModTime: o.LastModified}); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// clean has nothing to do: the parts of an upload that was never completed are no objects, and the bucket's
// lifecycle rule for incomplete uploads frees them.
func (b *bucket) clean(context.Context) error { return nil }

func (b *bucket) ping(ctx context.Context) error {
	ok, err := b.c.BucketExists(ctx, b.name)
	if err == nil && !ok {
		err = errors.New("the bucket does not exist or may not be read")
	}
	return err
}

func (b *bucket) close() error {
	b.transport.CloseIdleConnections()
	return nil
}

func bucketError(err error) error {
	if r := minio.ToErrorResponse(err); err != nil && r.StatusCode == http.StatusNotFound && r.Code != minio.NoSuchBucket {
		return ErrNotFound
	}
	return err
}

func randomText() string { return rand.Text() }
