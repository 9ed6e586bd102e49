package rootfs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Export writes an image as tar+zstd, the form that [Store.Import] reads. Names are sorted and times are those of the
// files, so two exports of one image are equal. The image cannot be removed meanwhile.
func (s *Store) Export(ctx context.Context, name string, w io.Writer) error {
	img, err := s.Get(name)
	if err != nil {
		return err
	}
	release, err := img.Hold()
	if err != nil {
		return err
	}
	defer release()
	zw, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return fmt.Errorf("export %s: %w", img.Name, err)
	}
	e := &exporter{tw: tar.NewWriter(zw), seen: map[inode]string{}}
	if err := errors.Join(e.tree(ctx, img.Path), e.tw.Close(), zw.Close()); err != nil {
		return fmt.Errorf("export %s: %w", img.Name, err)
	}
	return nil
}

type exporter struct {
	tw   *tar.Writer
	seen map[inode]string // first name of a file with several links
}

func (e *exporter) tree(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return e.entry(root, name, d)
	})
}

func (e *exporter) entry(root *os.Root, name string, d fs.DirEntry) error {
	if t := d.Type(); name == "." || (!t.IsRegular() && !t.IsDir() && t != fs.ModeSymlink) {
		return nil
	}
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = root.Readlink(name); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	// Names of users are the importing host's business; access times would make every export different.
	h.Name, h.Format, h.Uname, h.Gname = path.Clean(name), tar.FormatPAX, "", ""
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if info.IsDir() {
		h.Name += "/"
	}
	if info.Mode().IsRegular() {
		if id, links := inodeOf(info); links > 1 {
			if first, ok := e.seen[id]; ok {
				h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
				return e.tw.WriteHeader(h)
			}
			e.seen[id] = name
		}
	}
	if err := e.tw.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(e.tw, f)
	return errors.Join(err, f.Close())
}
