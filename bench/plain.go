package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// firstOutput starts a command and measures until its first byte.
func firstOutput(ctx context.Context, name string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(out, make([]byte, 1))
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s said nothing: %w", name, err)
	}
	return took, cmd.Wait()
}

// wholeCommand measures from the start to the reaping.
func wholeCommand(ctx context.Context, name string, args ...string) (time.Duration, error) {
	start := time.Now()
	_, err := exec.CommandContext(ctx, name, args...).Output()
	return time.Since(start), err
}

// bubblewrap is the command line of a sandbox without filter, limits, quota.
func bubblewrap(command ...string) []string {
	return append([]string{
		"--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr",
		"--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
	}, command...)
}

// plainServer keeps uploads as any Go program would: into a file, fsync,
// rename, fsync of the folder.
func plainServer(ctx context.Context, dir string) (url string, stop func() error, err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		if err := keep(r, dir); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, filepath.Join(dir, "plain")) })
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // it ends with ErrServerClosed
	return "http://" + l.Addr().String(), s.Close, nil
}

func keep(r *http.Request, dir string) error {
	parts, err := r.MultipartReader()
	if err != nil {
		return err
	}
	part, err := parts.NextPart()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "plain-")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, part); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "plain")); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}
