package main

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// save writes a local file whole or not at all: what stood at path is replaced once write has succeeded. Mode and, where
// that is allowed, owner of a replaced file are kept. What is no regular file, such as /dev/null, is written to directly.
func save(path string, write func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	before, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case before.IsDir():
		return &fs.PathError{Op: "write", Path: path, Err: syscall.EISDIR}
	case !before.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := beside(path, before)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// beside makes the file that will replace the one at path, which is before if there is one.
func beside(path string, before fs.FileInfo) (*os.File, error) {
	mode := fs.FileMode(0o644)
	if before != nil {
		mode = 0o600 // until it is the old one
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), ".airlock-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil || before == nil {
		return f, err
	}
	if st, ok := before.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(st.Uid), int(st.Gid)) // who may not do that owns the new file
	}
	if err := f.Chmod(before.Mode().Perm()); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}
