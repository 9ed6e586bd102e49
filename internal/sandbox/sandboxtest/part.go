package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// partVariable makes this program play a part instead of its own; its value
// is "part:instance:folder".
const partVariable = "AIRLOCK_SANDBOXTEST_PART"

// SelfPart is a Factory.Part that starts this very program again. Its main
// function must call PlayPart first.
func SelfPart(ctx context.Context, part string, host sandbox.Host, dir string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), partVariable+"="+part+":"+host.ID+":"+dir)
	// The test must not leave it behind when it dies itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if part == partConfined {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	return cmd
}

// PlayPart plays the part that this process was started for and does not
// return then; otherwise it does nothing.
func PlayPart(f Factory) {
	job := strings.SplitN(os.Getenv(partVariable), ":", 3)
	if len(job) != 3 {
		return
	}
	host := sandbox.Host{ID: job[1], RunDir: filepath.Join(job[2], "run")}
	play := map[string]func(context.Context, Factory, sandbox.Host, string) error{partHold: hold, partConfined: confined}[job[0]]
	if play == nil {
		return
	}
	if err := play(context.Background(), f, host, job[2]); err != nil {
		fmt.Fprintln(os.Stderr, "part:", err)
		os.Exit(1)
	}
	os.Exit(0)
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
			_, err := b.Sandbox.Exec(ctx, sandbox.Command{Shell: "setsid sleep 1000 & echo begun; while :; do echo x >> grows; done", Stdout: &firstWrite{seen: started}})
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
