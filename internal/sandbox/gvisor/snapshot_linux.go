package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
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

// A checkpoint is a folder with a label and, below, the folder of runsc's files. A jail sees the latter alone, so that
// nothing in it can write the label, or have it written elsewhere.
const (
	labelName   = "airlock.json"
	imageFolder = "image"
)

// sealed is the label of a checkpoint with the sums of its files. A torn write or a bad disk changes memory that nobody
// else checks; to find that is all they are for.
type sealed struct {
	Label label              `json:"label"`
	Files map[string]fileSum `json:"files"`
}

type fileSum struct {
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c"`
}

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
	image := filepath.Join(dir, imageFolder)
	if err := os.Mkdir(image, 0o700); err != nil {
		return fmt.Errorf("folder of checkpoint: %w", err)
	}
	if err := i.save(ctx, image); err != nil {
		return err
	}
	files, err := sums(ctx, image, largest(i.spec.Limits))
	if err != nil {
		return err
	}
	text, err := json.Marshal(sealed{l, files})
	if err != nil {
		return fmt.Errorf("encode label: %w", err)
	}
	// Last: a checkpoint without a label is none.
	if err := os.WriteFile(filepath.Join(dir, labelName), text, 0o600); err != nil {
		return fmt.Errorf("write label: %w", err)
	}
	return nil
}

// largest is what an image may take in bytes: all memory, and as much again for what the sentry says about it.
func largest(l sandbox.Limits) int64 { return 2*l.MemoryBytes + 256<<20 }

// sums reads the files of an image, together at most left bytes. Whoever wrote them may be hostile: a file without end must
// not keep the server reading.
func sums(ctx context.Context, dir string, left int64) (map[string]fileSum, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	files := map[string]fileSum{}
	for _, e := range entries {
		sum, err := sumFile(ctx, root, e.Name(), left)
		if err != nil {
			return nil, fmt.Errorf("read image: %w", err)
		}
		files[e.Name()] = sum
		left -= sum.Size
	}
	return files, nil
}

func sumFile(ctx context.Context, root *os.Root, name string, most int64) (fileSum, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fileSum{}, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return fileSum{}, errors.Join(fmt.Errorf("%q is no file", name), err)
	} else if info.Size() > most {
		return fileSum{}, fmt.Errorf("%q has %d bytes, more than an image can have", name, info.Size())
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, readerWhile{ctx, io.LimitReader(f, most)}, make([]byte, 1<<20))
	return fileSum{n, sum.Sum32()}, err
}

// readerWhile reads until its context ends.
type readerWhile struct {
	ctx context.Context
	r   io.Reader
}

func (r readerWhile) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
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
	if err := m.Add(setup.NewImage, image, err); err != nil {
		return err
	}
	i.orders.Lock()
	defer i.orders.Unlock()
	if err := i.greet(); err != nil {
		return err
	}
	order := setup.Order{
		Mounts: m.Targets, Last: true,
		Args: i.d.command("checkpoint", "--image-path="+setup.NewImage, "--compression=none", setup.Container),
	}
	i.AskToEnd()
	if err := i.send(order, m.FDs); err != nil {
		return err
	}
	return i.answer(within(ctx, snapshotLimit))
}

// Restore implements sandbox.Restorer.
func (d *Driver) Restore(ctx context.Context, spec sandbox.Spec, dir string) (*sandbox.Sandbox, error) {
	// Once: what was written may have begun to run when it was cut off.
	return d.fleet.Once(ctx, spec, func(ctx context.Context, spec sandbox.Spec) (*sandbox.Sandbox, error) {
		if err := d.check(ctx, spec, dir); err != nil {
			return nil, fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
		}
		sb, err := d.open(ctx, spec, filepath.Join(dir, imageFolder))
		if err != nil && !errors.Is(err, sandbox.ErrCapacity) && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", sandbox.ErrSnapshot, err)
		}
		return sb, err
	})
}

// check compares label and sums before anything is started.
func (d *Driver) check(ctx context.Context, spec sandbox.Spec, dir string) error {
	if spec.Workspace == nil {
		return errors.New("it needs the workspace it was made with")
	}
	text, err := os.ReadFile(filepath.Join(dir, labelName))
	if err != nil {
		return fmt.Errorf("read label: %w", err)
	}
	var have sealed
	if err := json.Unmarshal(text, &have); err != nil {
		return fmt.Errorf("read label: %w", err)
	}
	want, err := d.label(spec)
	if err != nil {
		return err
	}
	if have.Label != want {
		return errors.New("it is of another build or another spec")
	}
	files, err := sums(ctx, filepath.Join(dir, imageFolder), largest(spec.Limits))
	if err != nil {
		return err
	}
	if !maps.Equal(files, have.Files) {
		return errors.New("its files are not those that were written")
	}
	return nil
}
