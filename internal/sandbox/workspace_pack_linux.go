package sandbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// A packed workspace is one zstd stream: packMagic, the size of the image, then for each run of data its offset, its
// length and its bytes, and at the end a run of length zero at the image's end. Numbers are 64 bits, big endian.
const packMagic = "airlock-workspace-1\n"

// packPiece is how much is copied between two looks at the context.
const packPiece = 1 << 20

// block is the block size of the images; a block of zeros is a hole.
const block = 4096

// errPacked is what an unreadable stream comes to; the bytes are not those that Pack wrote.
var errPacked = fmt.Errorf("%w: not a packed workspace", ErrDamaged)

// Pack writes the image of an id to dst, without its holes. The image must not be attached (ErrLocked) and stays as it
// is; nobody can attach it meanwhile. os.ErrNotExist if there is none.
func (w *Workspaces) Pack(ctx context.Context, id string, dst io.Writer) error {
	if err := ValidID(id); err != nil {
		return err
	}
	image, err := openImage(w.Path(id))
	if err != nil {
		return fmt.Errorf("pack workspace %s: %w", id, err)
	}
	defer image.Close() // read only
	// One goroutine and a small window: this is background work, and many servers have two processors.
	z, err := zstd.NewWriter(dst, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return fmt.Errorf("pack workspace %s: %w", id, err)
	}
	err = pack(ctx, image.File, z)
	if cerr := z.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("pack workspace %s: %w", id, err)
	}
	return nil
}

func pack(ctx context.Context, image *os.File, dst io.Writer) error {
	info, err := image.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if _, err := dst.Write(binary.BigEndian.AppendUint64([]byte(packMagic), uint64(size))); err != nil {
		return err
	}
	err = eachRun(image, size, func(at, length int64) error {
		if _, err := dst.Write(runHeader(at, length)); err != nil {
			return err
		}
		return copyRange(ctx, dst, image, at, length)
	})
	if err != nil {
		return err
	}
	_, err = dst.Write(runHeader(size, 0))
	return err
}

func runHeader(at, length int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(at)), uint64(length))
}

// eachRun calls f for every stretch of a sparse file that is not a hole.
func eachRun(f *os.File, size int64, do func(at, length int64) error) error {
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if err := do(data, hole-data); err != nil {
			return err
		}
		at = hole
	}
	return nil
}

func copyRange(ctx context.Context, dst io.Writer, src io.ReaderAt, at, length int64) error {
	for length > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(length, packPiece)
		if _, err := io.Copy(dst, io.NewSectionReader(src, at, n)); err != nil {
			return err
		}
		at, length = at+n, length-n
	}
	return nil
}

// Unpack makes the image of an id from what Pack wrote. Before the image gets its name, check is called; an error of it
// keeps the image from existing, and so does every other error. An image of that id must not exist (os.ErrExist). A
// full disk is ErrCapacity; bytes that are no packed workspace are ErrDamaged, if src gave them up to io.EOF: an error of
// src itself says nothing about what is stored, and is returned as it is. When Unpack returns nil the image is on disk for
// good.
func (w *Workspaces) Unpack(ctx context.Context, id string, src io.Reader, check func() error) error {
	if err := ValidID(id); err != nil {
		return err
	}
	from := &source{r: src}
	err := w.publish(id, func(tmp *os.File) error {
		err := unpackStream(ctx, tmp, from)
		if from.err != nil {
			return from.err
		}
		if err != nil {
			return err
		}
		return check()
	})
	if err != nil {
		return fmt.Errorf("unpack workspace %s: %w", id, Full(err))
	}
	return nil
}

// source remembers why reading ended early. What decodes a stream cannot tell: a connection that breaks off and a blob that
// is too short are both io.ErrUnexpectedEOF to it, and only the second is a loss.
type source struct {
	r   io.Reader
	err error // the first one but io.EOF
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && s.err == nil {
		s.err = err
	}
	return n, err
}

func unpackStream(ctx context.Context, image *os.File, src io.Reader) error {
	z, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	return unpack(ctx, image, z)
}

// publish makes an image of an id that appears when it is whole and on disk.
func (w *Workspaces) publish(id string, fill func(*os.File) error) error {
	if err := os.MkdirAll(w.Dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(w.Dir, newPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // the name is free again after the rename
	err = fill(tmp)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, tmp.Name(), unix.AT_FDCWD, w.Path(id), unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(w.Path(id)))
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func unpack(ctx context.Context, image *os.File, src io.Reader) error {
	head := make([]byte, len(packMagic)+8)
	if err := readPacked(src, head); err != nil {
		return err
	}
	size := int64(binary.BigEndian.Uint64(head[len(packMagic):]))
	if string(head[:len(packMagic)]) != packMagic || size <= 0 {
		return errPacked
	}
	if err := image.Truncate(size); err != nil {
		return err
	}
	buf := make([]byte, packPiece)
	for end := int64(0); ; {
		at, length, err := readRun(src)
		if err != nil {
			return err
		}
		if at < end || at > size || length < 0 || length > size-at {
			return errPacked
		}
		if end = at + length; length == 0 {
			return ended(src, at == size)
		}
		if err := writeRun(ctx, image, src, at, length, buf); err != nil {
			return err
		}
	}
}

func readRun(src io.Reader) (at, length int64, err error) {
	var head [16]byte
	err = readPacked(src, head[:])
	return int64(binary.BigEndian.Uint64(head[:8])), int64(binary.BigEndian.Uint64(head[8:])), err
}

// ended reads the end of the stream, behind which its own checksum is compared.
func ended(src io.Reader, atEnd bool) error {
	if n, err := io.Copy(io.Discard, src); err != nil {
		return packedError(err)
	} else if n > 0 || !atEnd {
		return errPacked
	}
	return nil
}

func readPacked(src io.Reader, b []byte) error {
	_, err := io.ReadFull(src, b)
	return packedError(err)
}

// packedError tells a stream that is not whole, or not ours, from what else can go wrong.
func packedError(err error) error {
	for _, bad := range []error{
		io.EOF, io.ErrUnexpectedEOF, zstd.ErrMagicMismatch, zstd.ErrCRCMismatch, zstd.ErrReservedBlockType,
		zstd.ErrCompressedSizeTooBig, zstd.ErrBlockTooSmall, zstd.ErrWindowSizeExceeded, zstd.ErrDecoderSizeExceeded,
	} {
		if errors.Is(err, bad) {
			return fmt.Errorf("%w: %w", errPacked, err)
		}
	}
	return err
}

// writeRun leaves blocks of zeros out, which makes them holes.
func writeRun(ctx context.Context, image *os.File, src io.Reader, at, length int64, buf []byte) error {
	for length > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		piece := buf[:min(length, int64(len(buf)))]
		if err := readPacked(src, piece); err != nil {
			return err
		}
		if err := writeBlocks(image, piece, at); err != nil {
			return err
		}
		at, length = at+int64(len(piece)), length-int64(len(piece))
	}
	return nil
}

// writeBlocks writes each stretch of blocks that are not all zero.
func writeBlocks(image *os.File, piece []byte, at int64) error {
	var zero [block]byte
	from := 0
	flush := func(to int) error {
		if from == to {
			return nil
		}
		_, err := image.WriteAt(piece[from:to], at+int64(from))
		return err
	}
	for i := 0; i < len(piece); i += block {
		next := min(i+block, len(piece))
		if !bytes.Equal(piece[i:next], zero[:next-i]) {
			continue
		}
		if err := flush(i); err != nil {
			return err
		}
		from = next
	}
	return flush(len(piece))
}

// Clone copies the image of one id to another, which must not exist (os.ErrExist). The copy shares the blocks where the
// file system can, else it takes only what is no hole. An image that is attached is copied as its file is: nothing may
// write in it meanwhile, and it must have been synced. The copy is on disk for good when Clone returns nil.
func (w *Workspaces) Clone(ctx context.Context, from, to string) error {
	if err := errors.Join(ValidID(from), ValidID(to)); err != nil {
		return err
	}
	src, err := os.Open(w.Path(from))
	if err != nil {
		return fmt.Errorf("clone workspace %s: %w", from, err)
	}
	defer src.Close() // read only
	if err := w.publish(to, func(dst *os.File) error { return copySparse(ctx, dst, src) }); err != nil {
		return fmt.Errorf("clone workspace %s: %w", from, Full(err))
	}
	return nil
}
