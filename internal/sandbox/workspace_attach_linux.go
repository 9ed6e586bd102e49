package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait is how long an image may stay locked by a server that has just died: the kernel lets go when the last mount
// of its sandboxes is gone.
const lockWait = 10 * time.Second

// Attach makes the image usable by a sandbox. It repairs an image that was not detached cleanly. ErrLocked if it is
// attached already, here or by another process.
func (w *Workspace) Attach(ctx context.Context) error {
	w.busy.Lock()
	defer w.busy.Unlock()
	if w.image != nil {
		return fmt.Errorf("attach workspace %s: %w", w.ID, ErrLocked)
	}
	image, err := w.lock(ctx)
	if err != nil {
		return fmt.Errorf("attach workspace %s: %w", w.ID, err)
	}
	mount, err := attachImage(ctx, image.File)
	if err != nil { // a device that is still bound keeps the lock
		return errors.Join(fmt.Errorf("attach workspace %s: %w", w.ID, Full(err)), image.File.Close())
	}
	w.image = image.File
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mount = mount
	if run := w.detaching; run != nil && isClosed(run.done) {
		w.detaching = nil // of the time before
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lock waits for the lock of a dying server, not for one that lives: its loop device shows nothing, so time decides.
func (w *Workspace) lock(ctx context.Context) (image slot, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockWait, ErrLocked)
	defer cancel()
	err = poll(ctx, func() (bool, error) {
		f, err := openImage(w.path)
		if errors.Is(err, ErrLocked) {
			return false, nil
		}
		image = f
		return err == nil, err
	})
	return image, err
}

// Attached tells whether Attach has succeeded and Detach has not been called since.
func (w *Workspace) Attached() bool { return w.Mount() != nil }

// Mount is the detached mount of the file system, for drivers; nil if not attached.
func (w *Workspace) Mount() *os.File {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mount
}

func (w *Workspace) setMount(f *os.File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mount = f
}

// Sync writes everything to the image and the image to the disk.
func (w *Workspace) Sync(context.Context) error {
	w.busy.Lock()
	defer w.busy.Unlock()
	if w.image == nil {
		return nil
	}
	if err := syncImage(w.mount, w.image); err != nil {
		return fmt.Errorf("sync workspace %s: %w", w.ID, err)
	}
	return nil
}

func syncImage(mount, image *os.File) error {
	root, err := openRoot(mount)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(root) }() // opened for one call
	var st unix.Statfs_t
	if err := unix.Fstatfs(root, &st); err != nil {
		return err
	}
	// After an error the kernel writes no more, and of a file system that is read-only a sync says nothing.
	if st.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%w: the file system became read-only: %w", ErrUnsaved, unix.EROFS)
	}
	if err := unix.Syncfs(root); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsaved, err)
	}
	if err := image.Sync(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsaved, err)
	}
	return nil
}

// openRoot opens the top folder; a mount descriptor itself is a path only.
func openRoot(mount *os.File) (int, error) {
	return unix.Openat(int(mount.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// Detach writes everything out and releases the loop device. The sandboxes that used it must be destroyed. Repeatable.
// A disk that hangs cannot be called off: when ctx ends first Detach returns its cause and the work goes on; the next
// Detach waits for it again, or gives its result. The workspace is detached also if not everything could be written
// (ErrUnsaved).
func (w *Workspace) Detach(ctx context.Context) error { return w.end(ctx, true) }

// Drop is Detach for a workspace that is to be removed: it needs no room on the disk, and what was not written is lost.
func (w *Workspace) Drop(ctx context.Context) error { return w.end(ctx, false) }

func (w *Workspace) end(ctx context.Context, keep bool) error {
	run := w.startDetach(ctx, keep)
	select {
	case <-run.done:
		w.forget(run)
		return run.err
	case <-ctx.Done():
		return fmt.Errorf("detach workspace %s: still at work: %w", w.ID, context.Cause(ctx))
	}
}

// forget drops work whose result somebody has.
func (w *Workspace) forget(run *detaching) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.detaching == run {
		w.detaching = nil
	}
}

// startDetach begins to detach, or gives the work that goes on or whose result nobody has waited for.
func (w *Workspace) startDetach(ctx context.Context, keep bool) *detaching {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.detaching != nil {
		return w.detaching
	}
	run := &detaching{done: make(chan struct{})}
	w.detaching = run
	go func() {
		defer close(run.done)
		run.err = w.detach(context.WithoutCancel(ctx), keep)
	}()
	return run
}

func (w *Workspace) detach(ctx context.Context, keep bool) error {
	w.busy.Lock()
	defer w.busy.Unlock()
	if w.image == nil {
		return nil
	}
	mount := w.mount
	w.setMount(nil)
	var err error
	if keep {
		err = errors.Join(trim(mount), syncImage(mount, w.image))
	}
	// The last descriptor of the mount unmounts; the device clears itself after that.
	err = errors.Join(err, mount.Close(), w.image.Close())
	w.image = nil
	if err = errors.Join(err, w.released(ctx)); err != nil {
		return fmt.Errorf("detach workspace %s: %w", w.ID, err)
	}
	return nil
}

// released waits until the kernel has let go of the image, so that it can be removed, packed or attached at once.
func (w *Workspace) released(ctx context.Context) error {
	f, err := w.lock(ctx)
	if err != nil {
		return err
	}
	return f.Close()
}

// fitrim is FITRIM of linux/fs.h, the same number on both architectures.
const fitrim = 0xc0185879

// trim gives the space of deleted files back to the host.
func trim(mount *os.File) error {
	root, err := openRoot(mount)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(root) }() // opened for one call
	all := struct{ start, length, minimum uint64 }{length: ^uint64(0)}
	err = ioctlPointer(root, fitrim, &all)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil // a file system without holes under the image
	}
	return err
}

// attachImage returns a detached mount of the image: it hangs in no tree of the host, so that it ends with the last
// process that has it, and with it the loop device.
func attachImage(ctx context.Context, image *os.File) (*os.File, error) {
	clean, err := isClean(image)
	if err != nil {
		return nil, err
	}
	if !clean {
		if err := repair(ctx, image); err != nil {
			return nil, err
		}
	}
	mount, err := mountImage(image)
	if clean && (errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG)) { // it says that it is clean, and the kernel found that it is not
		if err := repair(ctx, image); err != nil {
			return nil, err
		}
		mount, err = mountImage(image)
	}
	if err != nil {
		return nil, err
	}
	if err := complete(mount); err != nil {
		return nil, errors.Join(err, mount.Close())
	}
	return mount, nil
}

func mountImage(image *os.File) (*os.File, error) {
	loop, err := loopDevice(image)
	if err != nil {
		return nil, err
	}
	defer loop.Close() // the mount keeps the device
	return mountExt4(loop.Name())
}

// complete refuses a file system whose folders a repair has not found again: what code kept in them is lost.
func complete(mount *os.File) error {
	for _, folder := range layout[1:] {
		var st unix.Stat_t
		if err := unix.Fstatat(int(mount.Fd()), folder.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("%w: folder %s: %w", ErrDamaged, folder.name, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return fmt.Errorf("%w: %s is no folder", ErrDamaged, folder.name)
		}
	}
	return nil
}

// loopDevice binds the image to a free device, which clears itself when its last user is gone.
func loopDevice(image *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("loop devices (modprobe loop): %w: %w", ErrCapacity, err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(image.Fd()), Size: 4096}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	for range 64 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("free loop device: %w: %w", ErrCapacity, err)
		}
		loop, err := openLoop(n)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCapacity, err)
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		_ = loop.Close() // somebody else was faster, or the error below counts
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("set up loop device: %w", err)
		}
	}
	return nil, fmt.Errorf("%w: no loop device stays free", ErrCapacity)
}

// openLoop makes the device node where no device manager does.
func openLoop(n int) (*os.File, error) {
	const loopMajor = 7
	path := "/dev/loop" + strconv.Itoa(n)
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(n)))); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
}

// mountExt4 mounts without barriers: what a sandbox flushes goes to the host's cache, and only Sync to the disk, so that
// one tenant's fsync storm is not everybody's.
func mountExt4(device string) (*os.File, error) {
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("ext4: %w", err)
	}
	defer func() { _ = unix.Close(fs) }() // a context without data
	if err := unix.FsconfigSetString(fs, "source", device); err != nil {
		return nil, fmt.Errorf("mount %s: %w", device, err)
	}
	if err := unix.FsconfigSetString(fs, "errors", "remount-ro"); err != nil {
		return nil, fmt.Errorf("mount %s: %w", device, err)
	}
	for _, flag := range []string{"nobarrier", "noinit_itable"} {
		if err := unix.FsconfigSetFlag(fs, flag); err != nil {
			return nil, fmt.Errorf("mount %s with %s: %w", device, flag, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("mount %s: %w", device, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, fmt.Errorf("mount %s: %w", device, err)
	}
	return os.NewFile(uintptr(fd), "workspace"), nil
}
