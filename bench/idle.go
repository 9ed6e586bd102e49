package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// idleContent is what each idle container holds in the row about disk.
const idleContent = 1 << 10

// idleDisk makes containers' workspaces, packs them as an hour without use does, and says what one of them takes on the disk
// beyond its content. The row of the database, half a KiB, is not in it.
func idleDisk(ctx context.Context, l *lab, n int) ([]result, error) {
	dir := filepath.Join(l.dir, "packed")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var used int64
	var took []time.Duration
	for i := range n {
		size, d, err := packOne(ctx, l, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return nil, err
		}
		used += size
		took = append(took, d)
	}
	each := float64(used)/float64(n) - idleContent
	row := atMost(fmt.Sprintf("disk of an idle container beyond its content, mean of %d", n), "KiB", each/1024, 64)
	row.Note = fmt.Sprintf("packed in %.1f ms", median(took))
	return []result{row}, os.RemoveAll(dir)
}

// packOne makes a workspace of the default size with one small file, packs it to path, removes it, and gives what the
// packed one takes on the disk.
func packOne(ctx context.Context, l *lab, path string) (size int64, took time.Duration, err error) {
	ws, drop, err := l.workspace(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	fd, err := unix.Openat(int(ws.Mount().Fd()), "workspace/note", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return 0, 0, err
	}
	_, err = unix.Write(fd, []byte(strings.Repeat("x", idleContent)))
	if err := errors.Join(err, unix.Close(fd), ws.Detach(ctx)); err != nil {
		return 0, 0, err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	err = errors.Join(l.spaces.Pack(ctx, ws.ID, out), out.Sync())
	took = time.Since(began)
	var st unix.Stat_t
	err = errors.Join(err, unix.Fstat(int(out.Fd()), &st), out.Close())
	return st.Blocks * 512, took, err
}
