package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const imageSuffix = ".img"

// Create makes a blank image of limits.DiskBytes and limits.Inodes. An id that exists is os.ErrExist; a full disk is
// ErrCapacity.
func (w *Workspaces) Create(ctx context.Context, id string, limits Limits) (*Workspace, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	limits = limits.WithDefaults()
	if err := limits.Validate(); err != nil {
		return nil, fmt.Errorf("workspace %s: %w", id, err)
	}
	template, err := w.template(ctx, limits)
	if err == nil {
		err = cloneImage(ctx, template, w.Path(id))
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", id, Full(err))
	}
	return &Workspace{ID: id, path: w.Path(id)}, nil
}

// Full adds ErrCapacity to the errors of a host that has run out of something.
func Full(err error) error {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrCapacity, err)
		}
	}
	return err
}

// Open names an existing image; os.ErrNotExist if there is none.
func (w *Workspaces) Open(id string) (*Workspace, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	if _, err := os.Stat(w.Path(id)); err != nil {
		return nil, fmt.Errorf("workspace %s: %w", id, err)
	}
	return &Workspace{ID: id, path: w.Path(id)}, nil
}

// Exists tells whether there is an image with this id.
func (w *Workspaces) Exists(id string) bool {
	_, err := w.Open(id)
	return err == nil
}

// List names all images, sorted.
func (w *Workspaces) List() ([]string, error) {
	entries, err := os.ReadDir(w.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, found := strings.CutSuffix(e.Name(), imageSuffix); found && ValidID(id) == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Path is where the image of an id lies.
func (w *Workspaces) Path(id string) string { return filepath.Join(w.Dir, id+imageSuffix) }

// Size is what the image of an id takes on disk; 0 if there is none.
func (w *Workspaces) Size(id string) int64 {
	if ValidID(id) != nil {
		return 0
	}
	return diskSize(w.Path(id))
}

// diskSize is what a file takes on disk; 0 if there is none.
func diskSize(path string) int64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// Stamp is another one after each change of a detached image; attaching it is one.
func (w *Workspaces) Stamp(id string) (string, error) {
	if err := ValidID(id); err != nil {
		return "", err
	}
	info, err := os.Stat(w.Path(id))
	if err != nil {
		return "", fmt.Errorf("workspace %s: %w", id, err)
	}
	return fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano()), nil
}

// Remove deletes an image for good; a missing one is no error, an attached one is ErrLocked.
func (w *Workspaces) Remove(id string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	f, err := openImage(w.Path(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove workspace %s: %w", id, err)
	}
	defer f.Close()
	if err := os.Remove(w.Path(id)); err != nil {
		return fmt.Errorf("remove workspace %s: %w", id, err)
	}
	return nil
}

// Rename gives an attached workspace another id. os.ErrExist if that is taken. The lock is held before, meanwhile and
// after, and one system call does it: a crash leaves the image under one name or the other. The next Sync makes the new
// name as durable as the data. Nobody else may use ws during the call.
func (w *Workspaces) Rename(ws *Workspace, id string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	ws.busy.Lock()
	defer ws.busy.Unlock()
	if ws.image == nil {
		return fmt.Errorf("rename workspace %s: it is not attached", ws.ID)
	}
	to := w.Path(id)
	if err := unix.Renameat2(unix.AT_FDCWD, ws.path, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return fmt.Errorf("rename workspace %s to %s: %w", ws.ID, id, err)
	}
	ws.ID, ws.path = id, to
	return nil
}

// Sweep removes half-made images and skeletons of an earlier run, never an image. Nobody else may use the folder
// meanwhile.
func (w *Workspaces) Sweep() error {
	entries, err := os.ReadDir(w.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep workspaces: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) {
			errs = append(errs, os.RemoveAll(filepath.Join(w.Dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// openImage opens an image and locks it until the result is closed. The lock belongs to the open file: a loop device bound
// to it keeps it as well, and closing the File inside instead leaves the lock to the device, also when this process dies.
func openImage(path string) (slot, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return slot{}, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // the lock error is the one that counts
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrLocked
		}
		return slot{}, err
	}
	return slot{f}, nil
}
