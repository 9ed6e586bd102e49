package vfork

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestChildDoesItsStepsAndExecutes(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var s Steps
	s.Call(unix.SYS_CHDIR, s.String("/usr"))
	s.Call(unix.SYS_DUP, w.Fd())
	s.CallOnResult(unix.SYS_DUP3, 1, 0)
	s.Call(unix.SYS_EXECVE, s.String("/bin/sh"), s.Strings([]string{"sh", "-c", "pwd; echo $WORD"}), s.Strings([]string{"WORD=hi"}))
	pid, err := s.Start(0, -1)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if string(out) != "/usr\nhi\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status != 0 {
		t.Errorf("ended with %v, %v", status, err)
	}
}

func TestStepThatFailsEndsTheChildAndIsNamed(t *testing.T) {
	t.Parallel()
	var s Steps
	s.Call(unix.SYS_SETSID)
	s.Call(unix.SYS_CHDIR, s.String("/nowhere/at/all"))
	s.Call(unix.SYS_EXECVE, s.String("/bin/true"), s.Strings([]string{"true"}), s.Strings(nil))
	if _, err := s.Start(0, -1); !errors.Is(err, syscall.ENOENT) || err.Error() != "step 1 of the child: no such file or directory" {
		t.Errorf("got %v", err)
	}
}

func TestTextWithANULMakesNoChild(t *testing.T) {
	t.Parallel()
	var s Steps
	s.Call(unix.SYS_EXECVE, s.String("/bin/true"), s.Strings([]string{"a\x00b"}), s.Strings(nil))
	if pid, err := s.Start(0, -1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("pid %d, %v", pid, err)
	}
}
