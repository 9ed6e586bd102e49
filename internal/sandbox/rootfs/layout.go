package rootfs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/klauspost/compress/zstd"
)

// unpackLayout unpacks the image of this machine's architecture from an OCI layout folder and returns the digest of
// its manifest. Every blob is checked against its digest.
func unpackLayout(ctx context.Context, u *unpacker, dir string) (string, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", fmt.Errorf("open OCI layout: %w", err)
	}
	image, digest, err := pickImage(index, 0)
	if err != nil {
		return "", err
	}
	layers, err := image.Layers()
	if err != nil {
		return "", fmt.Errorf("read OCI manifest: %w", err)
	}
	u.whiteouts = true
	for _, l := range layers {
		if err := unpackLayer(ctx, u, l); err != nil {
			return "", err
		}
	}
	return digest, nil
}

// pickImage walks nested indexes; an entry without a platform counts as ours.
func pickImage(index v1.ImageIndex, depth int) (v1.Image, string, error) {
	m, err := index.IndexManifest()
	if err != nil {
		return nil, "", fmt.Errorf("read OCI index: %w", err)
	}
	for _, d := range m.Manifests {
		if p := d.Platform; p != nil && p.Architecture != "" && (p.OS != "linux" || p.Architecture != runtime.GOARCH) {
			continue
		}
		if d.MediaType.IsIndex() && depth < 4 {
			nested, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, "", fmt.Errorf("read OCI index: %w", err)
			}
			if image, digest, err := pickImage(nested, depth+1); err == nil {
				return image, digest, nil
			}
			continue
		}
		if !d.MediaType.IsImage() {
			continue
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			return nil, "", fmt.Errorf("read OCI manifest: %w", err)
		}
		raw, err := image.RawManifest()
		if err != nil {
			return nil, "", fmt.Errorf("read OCI manifest: %w", err)
		}
		if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != d.Digest.Hex {
			return nil, "", fmt.Errorf("OCI manifest %s has other bytes: %w", d.Digest, ErrUnsafeArchive)
		}
		return image, d.Digest.Hex, nil
	}
	return nil, "", fmt.Errorf("the OCI layout has no image for linux/%s: %w", runtime.GOARCH, ErrNotFound)
}

func unpackLayer(ctx context.Context, u *unpacker, l v1.Layer) error {
	want, err := l.Digest()
	if err != nil {
		return fmt.Errorf("read OCI layer: %w", err)
	}
	packed, err := l.Compressed()
	if err != nil {
		return fmt.Errorf("read OCI layer %s: %w", want, err)
	}
	defer packed.Close()
	h := sha256.New()
	tee := io.TeeReader(packed, h)
	if err := u.compressed(ctx, tee); err != nil {
		return fmt.Errorf("OCI layer %s: %w", want, err)
	}
	// The tar reader stops at its end mark; what follows belongs to the digest.
	if _, err := io.Copy(io.Discard, tee); err != nil {
		return fmt.Errorf("read OCI layer %s: %w", want, err)
	}
	if hex.EncodeToString(h.Sum(nil)) != want.Hex {
		return fmt.Errorf("OCI layer %s has other bytes: %w", want, ErrUnsafeArchive)
	}
	return nil
}

// compressed unpacks a layer as it is stored. When it returns nobody reads r any more: the zstd decoder reads ahead on a
// goroutine of its own, which Close waits for.
func (u *unpacker) compressed(ctx context.Context, r io.Reader) error {
	plain, err := decompress(r)
	if err != nil {
		return err
	}
	return errors.Join(u.layer(ctx, plain), plain.Close())
}

// decompress reads gzip, zstd or nothing, by the first bytes.
func decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 1<<20)
	head, err := br.Peek(6)
	if err != nil && len(head) < 2 {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(br)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(br, zstd.WithDecoderMaxWindow(512<<20))
		if err != nil {
			return nil, fmt.Errorf("read archive: %w", err)
		}
		return d.IOReadCloser(), nil
	case bytes.HasPrefix(head, []byte("\xfd7zXZ")), bytes.HasPrefix(head, []byte("BZh")):
		return nil, fmt.Errorf("xz and bzip2 are not read: unpack it first: %w", ErrUnsafeArchive)
	}
	return io.NopCloser(br), nil
}
