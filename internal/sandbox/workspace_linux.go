package sandbox

import (
	"context"
	"errors"
	"os"
)

// Create makes a blank image of limits.DiskBytes and limits.Inodes. An id that exists is an error.
func (w *Workspaces) Create(ctx context.Context, id string, limits Limits) (*Workspace, error) {
	return nil, errors.New("not written yet")
}

// Open names an existing image; os.ErrNotExist if there is none.
func (w *Workspaces) Open(id string) (*Workspace, error) { return nil, errors.New("not written yet") }

// Exists tells whether there is an image with this id.
func (w *Workspaces) Exists(id string) bool { return false }

// List names all images, sorted.
func (w *Workspaces) List() ([]string, error) { return nil, nil }

// Path is where the image of an id lies.
func (w *Workspaces) Path(id string) string { return "" }

// Remove deletes an image for good; a missing one is no error, an attached one is.
func (w *Workspaces) Remove(id string) error { return nil }

// Attach makes the image usable by a sandbox. Attached twice is an error, here and by another process.
func (w *Workspace) Attach(ctx context.Context) error { return errors.New("not written yet") }

// Attached tells whether Attach has succeeded and Detach has not been called since.
func (w *Workspace) Attached() bool { return false }

// Mount is the detached mount of the file system, for drivers; nil if not attached.
func (w *Workspace) Mount() *os.File { return nil }

// Sync writes everything to the image and the image to the disk.
func (w *Workspace) Sync(ctx context.Context) error { return nil }

// Detach writes everything out and releases the loop device. The sandboxes that used it must be destroyed. Repeatable.
func (w *Workspace) Detach(ctx context.Context) error { return nil }
