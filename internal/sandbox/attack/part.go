package attack

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// The parts that another process plays.
const (
	// partHold keeps Victims sandboxes busy until it is killed.
	partHold = "hold"
	// partConfined tries to make a sandbox where no cgroup can be made.
	partConfined = "confined"
)

// startable is the process that plays a part for a host instance, with its files below dir.
func (e *Env) startable(ctx context.Context, part string, host sandbox.Host, dir string) *exec.Cmd {
	cmd := e.Part(ctx, strings.Join([]string{part, host.ID, dir}, ":"))
	// It must not be left behind when this process dies itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if part == partConfined {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	return cmd
}

// PlayPart plays the part of an attempt for which this process was started, see Factory.Part. Standard output belongs
// to it. It returns when the part is over; one part never is, and ends by being killed.
func PlayPart(ctx context.Context, f Factory, part string) error {
	job := strings.SplitN(part, ":", 3)
	if len(job) != 3 {
		return fmt.Errorf("part %q has not the form name:instance:folder", part)
	}
	host := sandbox.Host{ID: job[1], RunDir: filepath.Join(job[2], "run")}
	switch job[0] {
	case partHold:
		return hold(ctx, f, host, job[2])
	case partConfined:
		return confined(ctx, f, host, job[2])
	}
	return fmt.Errorf("part %q is not known", job[0])
}

// hold keeps sandboxes busy until this process is killed.
func hold(ctx context.Context, f Factory, host sandbox.Host, dir string) error {
	driver, err := f.New(host)
	if err != nil {
		return err
	}
	e := &Env{Factory: f, Host: host, Driver: driver, Dir: dir, Workspaces: &sandbox.Workspaces{Dir: filepath.Join(dir, "workspaces")}}
	busy := make(chan error, Victims)
	for n := range Victims {
		b, err := e.Start(ctx, func(s *sandbox.Spec) { s.ID = "victim" + strconv.Itoa(n) })
		if err != nil {
			return err
		}
		if _, err := b.Sh(ctx, "echo synced > kept"); err != nil {
			return err
		}
		if err := b.Sync(ctx); err != nil {
			return err
		}
		started := make(chan struct{})
		go func() {
			_, err := b.Sandbox.Exec(ctx, sandbox.Command{Shell: "setsid sleep 1000 & echo begun; while :; do echo x >> grows; done", Stdout: &FirstWrite{Seen: started}})
			busy <- err
		}()
		if err := begun(started, busy); err != nil {
			return err
		}
	}
	fmt.Println("holding")
	return <-busy
}

// confined makes every cgroup hierarchy read-only for this process, in a mount
// namespace of its own, and says what Create answers.
func confined(ctx context.Context, f Factory, host sandbox.Host, dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	table, err := linesWith("/proc/self/mountinfo", " /sys/fs/cgroup")
	if err != nil {
		return err
	}
	for _, line := range table {
		point := strings.Fields(line)[4]
		if err := unix.Mount("", point, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", point, err)
		}
	}
	driver, err := f.New(host)
	if err == nil {
		e := &Env{Factory: f, Host: host, Driver: driver, Dir: dir}
		var b *Box
		if b, err = e.StartBlank(ctx); err == nil {
			fmt.Println("made")
			return errors.Join(b.Destroy(ctx), driver.Close(ctx))
		}
		err = errors.Join(err, driver.Close(ctx))
	}
	fmt.Println("refused:", strings.ReplaceAll(err.Error(), "\n", "; "))
	return nil
}
