package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/gvisor/setup"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
)

// snapshotLimit is how long runsc may take to write or read a checkpoint, beside the caller's own limit.
const snapshotLimit = 60 * time.Second

// labelName is the file beside runsc's own that says what a checkpoint belongs to.
const labelName = "airlock.json"

// label is all that must be equal for a checkpoint to be continued: the kernel that wrote it, what it was told, and the
// programs whose memory it holds.
type label struct {
	Runsc    string `json:"runsc"` // version
	Platform string `json:"platform"`
	Guest    string `json:"guest"`  // SHA-256
	Bundle   string `json:"bundle"` // SHA-256
	RootFS   string `json:"rootfs"`
	Filter   string `json:"filter"` // SHA-256
	// Limits are partly the memory of what was written: the process limit, the memory that the sentry believes in.
	Limits sandbox.Limits `json:"limits"`
}

func (d *Driver) label(spec sandbox.Spec) (label, error) {
	version, err := d.version()
	if err != nil {
		return label{}, err
	}
	bundle, err := bundleOf(spec)
	if err != nil {
		return label{}, err
	}
	guest := sha256.New()
	if _, err := io.Copy(guest, io.NewSectionReader(d.guest, 0, 1<<30)); err != nil {
		return label{}, fmt.Errorf("hash guest: %w", err)
	}
	return label{
		Runsc: version, Platform: d.platform, Guest: hex.EncodeToString(guest.Sum(nil)), Bundle: sum(bundle),
		RootFS: spec.RootFS, Filter: sum(d.filter), Limits: spec.Limits,
	}, nil
}

func sum(p []byte) string {
	s := sha256.Sum256(p)
	return hex.EncodeToString(s[:])
}

// Checkpoint implements sandbox.Checkpointer.
func (i *instance) Checkpoint(ctx context.Context, dir string) error {
	if i.spec.Workspace == nil {
		return errors.New("without a workspace its files would be lost")
	}
	l, err := i.d.label(i.spec)
	if err != nil {
		return err
	}
	if err := i.SetFrozen(ctx, false); err != nil {
		return err
	}
	if err := i.save(ctx, dir); err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode label: %w", err)
	}
	// Last: a checkpoint without a label is none.
	if err := os.WriteFile(filepath.Join(dir, labelName), text, 0o600); err != nil {
		return fmt.Errorf("write label: %w", err)
	}
	return nil
}

// save has the launcher write the processes into dir.
func (i *instance) save(ctx context.Context, dir string) error {
	userns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", i.Proc.Pid))
	if err != nil {
		return fmt.Errorf("user namespace of launcher: %w", err)
	}
	defer userns.Close()
	m := &spawn.Mounts{}
	defer m.Close()
	const attr = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	image, err := spawn.Clone(unix.AT_FDCWD, dir, attr, int(userns.Fd()))
	if err := m.Add(setup.Image, image, err); err != nil {
		return err
	}
	if !i.greeted {
		i.greeted = true
		if err := i.answer(reasonWait); err != nil {
			return err
		}
	}
	order := setup.Order{
		Mounts: m.Targets, Last: true,
		Args: i.d.command("checkpoint", "--image-path="+setup.Image, "--compression=none", setup.Container),
	}
	if err := i.send(order, m.FDs); err != nil {
		return err
	}
	limit := snapshotLimit
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	return i.answer(limit)
}

// Restore implements sandbox.Restorer.
func (d *Driver) Restore(ctx context.Context, spec sandbox.Spec, dir string) (*sandbox.Sandbox, error) {
	return d.fleet.Create(ctx, spec, func(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
		if err := d.check(spec, dir); err != nil {
			return nil, fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
		}
		sb, err := d.open(ctx, spec, dir)
		if err != nil && !errors.Is(err, sandbox.ErrCapacity) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
		}
		return sb, err
	})
}

// check compares the label before anything is started.
func (d *Driver) check(spec sandbox.Spec, dir string) error {
	if spec.Workspace == nil {
		return errors.New("it needs the workspace it was made with")
	}
	text, err := os.ReadFile(filepath.Join(dir, labelName))
	if err != nil {
		return fmt.Errorf("read label: %w", err)
	}
	var have label
	if err := json.Unmarshal(text, &have); err != nil {
		return fmt.Errorf("read label: %w", err)
	}
	want, err := d.label(spec)
	if err != nil {
		return err
	}
	if have != want {
		return errors.New("it is of another build or another spec")
	}
	return nil
}
