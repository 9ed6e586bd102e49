package sandbox

import (
	"strings"
	"testing"
	"time"
)

func TestNoLimitMayBeAbsent(t *testing.T) {
	t.Parallel()
	if err := DefaultLimits().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Limits){
		"memory": func(l *Limits) { l.MemoryBytes = 0 }, "cpus": func(l *Limits) { l.CPUs = 0 },
		"processes": func(l *Limits) { l.Processes = -1 }, "disk": func(l *Limits) { l.DiskBytes = 0 },
		"inodes": func(l *Limits) { l.Inodes = 0 }, "file": func(l *Limits) { l.FileBytes = -1 },
		"files": func(l *Limits) { l.OpenFiles = 1 }, "wall": func(l *Limits) { l.Wall = -time.Second },
		"output": func(l *Limits) { l.OutputBytes = 0 },
	} {
		l := DefaultLimits()
		spoil(&l)
		if l.Validate() == nil {
			t.Errorf("%s: a sandbox without this limit was accepted", name)
		}
	}
}

func TestZeroLimitsTakeTheDefaults(t *testing.T) {
	t.Parallel()
	if got := (Limits{}).WithDefaults(); got != DefaultLimits() {
		t.Errorf("got %+v", got)
	}
	if got := (Limits{CPUs: 0.5}).WithDefaults().CPUs; got != 0.5 {
		t.Errorf("a set limit became %g", got)
	}
}

func TestIDsCannotLeaveTheirFolder(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", ".", "..", "a/b", "a.b", "-\n", strings.Repeat("a", 65), "ä"} {
		if ValidID(id) == nil {
			t.Errorf("id %q was accepted", id)
		}
	}
	for _, id := range []string{"a", "container_01AbC", "x-1"} {
		if err := ValidID(id); err != nil {
			t.Error(err)
		}
	}
}

func TestInstanceIDsCannotBePrefixesOfEachOther(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "a-b", "A", "a/b", strings.Repeat("a", 33)} {
		if (Host{ID: id}).Validate() == nil {
			t.Errorf("instance id %q was accepted", id)
		}
	}
}

func TestSpecNeedsAHostFolderAndCleanVariables(t *testing.T) {
	t.Parallel()
	good := Spec{ID: "a", RootFS: "/r", Limits: DefaultLimits()}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Spec){
		"relative root": func(s *Spec) { s.RootFS = "r" }, "long host name": func(s *Spec) { s.Hostname = strings.Repeat("h", 64) },
		"name with =": func(s *Spec) { s.Env = map[string]string{"A=B": ""} }, "NUL": func(s *Spec) { s.Env = map[string]string{"A": "\x00"} },
		"no limits": func(s *Spec) { s.Limits = Limits{} }, "an option for a module": func(s *Spec) { s.Preload = []string{"-c"} },
		"a path for a module": func(s *Spec) { s.Preload = []string{"numpy", "../x"} },
	} {
		s := good
		spoil(&s)
		if s.Validate() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
