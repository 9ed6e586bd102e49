package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// tempDir holds blobs in the making. A key cannot begin with a dot, so it is never one.
const tempDir = ".tmp"

// staleTemp is the silence after which a temporary file belongs to no running upload. Bytes are written in
// pieces of 256 KiB, which even a line of 40 bytes a second fills in that time.
const staleTemp = 2 * time.Hour

// folder keeps blobs as files, and syncs them: an upload that was acknowledged is not lost with the power.
type folder struct {
	root *os.Root
}

func openFolder(dir string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open blob folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open blob folder: %w", err)
	}
	f := &folder{root: root}
	if err := root.MkdirAll(tempDir, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("open blob folder: %w", err), root.Close())
	}
	return f, nil
}

// clean removes what a killed process left. Uploads may be running, so only silent files go.
func (f *folder) clean(context.Context) error {
	now := time.Now()
	entries, err := fs.ReadDir(f.root.FS(), tempDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if now.Sub(info.ModTime()) < staleTemp {
			continue
		}
		if err := f.root.Remove(path.Join(tempDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

type folderWriter struct {
	f    *folder
	file *os.File
	temp string
	key  string
}

func (f *folder) create(_ context.Context, key string) (writer, error) {
	temp := path.Join(tempDir, strings.ReplaceAll(key, "/", "-")+"."+randomText())
	file, err := f.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &folderWriter{f: f, file: file, temp: temp, key: key}, nil
}

func (w *folderWriter) Write(b []byte) (int, error) { return w.file.Write(b) }

// commit syncs the bytes before they get their name, and the name before it is told to anyone.
func (w *folderWriter) commit() error {
	if err := w.file.Sync(); err != nil {
		w.abort()
		return err
	}
	if err := w.file.Close(); err != nil {
		w.abort()
		return err
	}
	dir := path.Dir(w.key)
	if err := w.f.makeDir(dir); err != nil {
		w.abort()
		return err
	}
	if err := w.f.root.Rename(w.temp, w.key); err != nil {
		w.abort()
		return err
	}
	return w.f.syncDir(dir)
}

func (w *folderWriter) abort() {
	// A second close after a failed one, or a file that is gone, changes nothing; what stays behind after
	// all is removed by clean.
	_ = w.file.Close()
	_ = w.f.root.Remove(w.temp)
}

// makeDir makes a folder and syncs the names it adds, so that a blob in a new folder survives as well.
func (f *folder) makeDir(dir string) error {
	if dir == "." {
		return nil
	}
	if _, err := f.root.Stat(dir); err == nil {
		return nil
	}
	if err := f.makeDir(path.Dir(dir)); err != nil {
		return err
	}
	if err := f.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.syncDir(path.Dir(dir))
}

func (f *folder) syncDir(dir string) error {
	d, err := f.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type section struct {
	io.Reader
	io.Closer
}

func (f *folder) open(_ context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	file, err := f.root.Open(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	if offset > 0 {
		if _, err := file.Seek(offset, io.SeekStart); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	if length < 0 {
		return file, nil
	}
	return section{io.LimitReader(file, length), file}, nil
}

func (f *folder) remove(_ context.Context, key string) error {
	err := f.root.Remove(key)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	return err
}

func (f *folder) list(ctx context.Context, prefix string, fn func(Entry) error) error {
	start := "."
	if i := strings.LastIndexByte(prefix, '/'); i > 0 {
		start = prefix[:i]
	}
	err := fs.WalkDir(f.root.FS(), start, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // removed while we walk
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.IsDir() && name == tempDir:
			return fs.SkipDir
		case d.IsDir() || !strings.HasPrefix(name, prefix):
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return fn(Entry{Key: name, Size: info.Size(), ModTime: info.ModTime()})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f *folder) ping(context.Context) error {
	_, err := f.root.Stat(tempDir)
	return err
}

func (f *folder) close() error { return f.root.Close() }
