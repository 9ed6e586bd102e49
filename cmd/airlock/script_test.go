package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"airlock": func() { os.Exit(run(os.Args[1:])) }}) // testscript wants a program
}

// TestScripts runs testdata/script: each file is a session at a shell, against a server of its own data folder that all
// of them share. A script that needs no server sets AIRLOCK_DATA itself.
func TestScripts(t *testing.T) {
	if os.Geteuid() != 0 {
		if strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "root") {
			t.Fatal("root is required: the server makes sandboxes")
		}
		t.Skip("needs root: the server makes sandboxes")
	}
	data := startServer(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("AIRLOCK_DATA", data)
			env.Setenv("AIRLOCK_ROOTFS", rootfsFolder())
			env.Setenv("AIRLOCK_MODEL", "script")
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, ".state"))
			return nil
		},
	})
}

// rootfsFolder is where this user's root file systems are; scripts have a home of their own.
func rootfsFolder() string {
	if data := os.Getenv("XDG_DATA_HOME"); data != "" {
		return filepath.Join(data, "airlock", "rootfs")
	}
	return filepath.Join(os.Getenv("HOME"), ".local", "share", "airlock", "rootfs")
}

// startServer serves the scripted model on a fresh data folder until the test ends.
func startServer(t *testing.T) (data string) {
	t.Helper()
	data = t.TempDir()
	cmd := exec.Command("airlock", "serve", "--listen", "127.0.0.1:0", "--data", data, "--upstream", "script", "--allow-shared-kernel")
	cmd.Env = append(os.Environ(), "AIRLOCK_DISK_CROWDED_PERCENT=99.8", "AIRLOCK_DISK_FULL_PERCENT=99.9") // how full the disk of this machine is is no matter here
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended badly: %v", err)
		}
		_ = log.Close()
		if b, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the server's log:\n%s", b)
		}
	})
	line := bufio.NewScanner(out)
	if !line.Scan() || !strings.HasPrefix(line.Text(), "airlock ready url=") {
		b, _ := os.ReadFile(log.Name())
		t.Fatalf("first line %q\n%s", line.Text(), b)
	}
	return data
}
