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

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// helperVariable makes this program play a part of an attempt instead of its
// own; its value is "instance:folder".
const helperVariable = "AIRLOCK_SANDBOXTEST_HELPER"

// SelfCrash is a Factory.Crash that starts this very program again. Its main
// function must call Helper first.
func SelfCrash(ctx context.Context, host sandbox.Host, workspaces string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), helperVariable+"="+host.ID+":"+filepath.Dir(workspaces))
	// The test must not leave it behind when it dies itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Helper plays the server that row 51 kills and does not return, if this
// process was started for that; otherwise it does nothing.
func Helper(f Factory) {
	job := os.Getenv(helperVariable)
	if job == "" {
		return
	}
	if err := hold(context.Background(), f, job); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hold keeps sandboxes busy until this process is killed.
func hold(ctx context.Context, f Factory, job string) error {
	id, dir, found := strings.Cut(job, ":")
	if !found {
		return errors.New("malformed " + helperVariable)
	}
	host := sandbox.Host{ID: id, RunDir: filepath.Join(dir, "run")}
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
		<-started
	}
	fmt.Println("holding")
	return <-busy
}
