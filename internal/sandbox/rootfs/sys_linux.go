package rootfs

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

type inode struct{ dev, ino uint64 }

func inodeOf(info fs.FileInfo) (inode, uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, 1
	}
	return inode{uint64(st.Dev), st.Ino}, uint64(st.Nlink) //nolint:unconvert // the widths differ per architecture
}

// syncTree flushes the tree's file system; one call is far cheaper than an fsync for each of 40,000 files.
func syncTree(tree string) error {
	f, err := os.Open(tree)
	if err != nil {
		return fmt.Errorf("sync tree: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync tree: %w", err)
	}
	return nil
}
