package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/airlock-sandbox/airlock/internal/server/servertest"
)

func TestOneMoreOfAnyKindIsGrowth(t *testing.T) {
	t.Parallel()
	before := holdings{"descriptor: socket": 4, "loop device": 2, "descriptor: DATA/airlock.db": 2}
	for name, tt := range map[string]struct {
		after holdings
		want  string
	}{
		"the same":          {holdings{"descriptor: socket": 4, "loop device": 2, "descriptor: DATA/airlock.db": 2}, ""},
		"less":              {holdings{"descriptor: socket": 3}, ""},
		"one more":          {holdings{"descriptor: socket": 5}, "descriptor: socket: 5, were 4"},
		"a new kind":        {holdings{"id range": 1}, "id range: 1, were 0"},
		"connections":       {holdings{"descriptor: DATA/airlock.db": bounds["descriptor: DATA/airlock.db"]}, ""},
		"beyond the bounds": {holdings{"descriptor: DATA/airlock.db": 1000}, "descriptor: DATA/airlock.db: 1000, were 2"},
	} {
		if got := before.growth(tt.after); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A mount of the product is in no mount table: only what a descriptor hangs on tells of it.
func TestDescriptorsAreToldApartByWhatTheyAreOpenOn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		target string
		loose  bool
		want   string
	}{
		{"socket:[123]", true, "socket"},
		{"anon_inode:[eventpoll]", true, "eventpoll"},
		{"mnt:[4026531840]", true, "mnt"},
		{"/", true, "detached mount"},
		{"/workspace", true, "detached mount"},
		{"/", false, "/"},
		{"/memfd:guest (deleted)", true, "memory file"},
		{"/dev/loop12", false, "loop device"},
		{"/dev/loop-control", false, "/dev/loop-control"},
		{"/run/airlock/ids/0815", false, "id range"},
		{"/sys/fs/cgroup/memory/airlock-x-y", false, "cgroup"},
		{"/data/airlock.db-wal", false, "DATA/airlock.db-wal"},
		{"/data/workspaces/container_1.img", false, "DATA/workspaces/*"},
		{"/data/run/a/b", false, "DATA/run/*"},
	} {
		if got := descriptorKind(tt.target, tt.loose, "/data"); got != tt.want {
			t.Errorf("%s, loose %t: %q, want %q", tt.target, tt.loose, got, tt.want)
		}
	}
}

// It counts what the process of all tests holds, so no other runs beside it.
func TestDetachedMountOfAProcessIsSeen(t *testing.T) {
	look := func() int {
		h := holdings{}
		if err := h.descriptors("/proc/self", "/nowhere"); err != nil {
			t.Fatal(err)
		}
		return h["descriptor: detached mount"]
	}
	before := look()
	fd, err := unix.OpenTree(unix.AT_FDCWD, t.TempDir(), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == unix.EPERM && os.Geteuid() != 0 && !strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "root") {
		t.Skip("needs root to make a mount")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if got := look(); got != before+1 {
		t.Errorf("%d detached mounts, want %d", got, before+1)
	}
}

func TestStatOfAProcessIsReadWhateverItsName(t *testing.T) {
	t.Parallel()
	for stat, want := range map[string][3]any{
		"12 (bash) S 7 12 12 0":       {"bash", "S", 7},
		"12 (a) Z 1 (b) R) Z 9 12 12": {"a) Z 1 (b) R", "Z", 9},
		"12 (cut":                     {"", "", 0},
	} {
		if name, state, parent := parseStat(stat); [3]any{name, state, parent} != want {
			t.Errorf("%s: %q, %q, %d", stat, name, state, parent)
		}
	}
}

func TestAnswerThatSaysNothingIsExplainedByTheLog(t *testing.T) {
	t.Parallel()
	w := &world{dir: t.TempDir()}
	log := "level=INFO msg=request request_id=req_01a\nlevel=ERROR msg=request request_id=req_01a error=\"disk on fire\"\nrequest_id=req_02 error=x\n"
	if err := os.WriteFile(filepath.Join(w.dir, "log"), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	got := w.why(errors.New(`500 {"request_id":"req_01a"}`))
	if strings.Count(got, "log:") != 1 || !strings.Contains(got, "disk on fire") {
		t.Errorf("got %s", got)
	}
}

func TestEntriesOfTheDataFolderAreCounted(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, name := range []string{"workspaces/container_1.img", "workspaces/pool-1.img", "snapshots/container_1", "new/thing"} {
		if err := os.MkdirAll(filepath.Join(data, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h := holdings{}
	if err := h.folders(data); err != nil || h["entry of workspaces"] != 1 || h[poolImages] != 1 || h["entry of snapshots"] != 1 || h["entry of new"] != 1 {
		t.Errorf("%v, %v", h, err)
	}
}

func TestServerThatDoesNotComeToRestIsTold(t *testing.T) {
	t.Parallel()
	n := 0
	_, err := quiet(t.Context(), 0, atRest("native"), func() (holdings, error) { n++; return holdings{poolImages: poolSize, "id range": n}, nil })
	if err == nil || !strings.Contains(err.Error(), "id range") {
		t.Errorf("got %v", err)
	}
}

// What is measured while the pool is being filled would hide as much as the pool is short of.
func TestServerIsMeasuredAtRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		look := func() (holdings, error) {
			now := holdings{poolImages: int(min(time.Since(began), 50*time.Second) / (25 * time.Second))}
			switch age := time.Since(began); {
			case age > 100*time.Second:
				now[baseEntries] = 1
			case age > 70*time.Second: // it is being made
				now[poolImages]++
			}
			return now, nil
		}
		for driver, bases := range map[string]int{"native": 0, "gvisor": 1} {
			began = time.Now()
			got, err := quiet(t.Context(), 2*time.Minute, atRest(driver), look)
			if err != nil || got[poolImages] != poolSize || got[baseEntries] != bases {
				t.Errorf("%s: %v, %v", driver, got, err)
			}
		}
	})
}

// fakeServer has one container, whose file holds log.
func fakeServer(t *testing.T, log string) *world {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /airlock/v1/containers/{id}/exec", func(w http.ResponseWriter, _ *http.Request) {
		out, err := json.Marshal(map[string]any{"stream": "stdout", "data_base64": []byte(log + "\nnone\n")})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte("event: out\ndata: " + string(out) + "\n\nevent: exit\ndata: {\"code\":0}\n\n"))
	})
	mux.HandleFunc("DELETE /airlock/v1/containers/{id}", func(http.ResponseWriter, *http.Request) {})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return &world{
		report: newReport(options{out: t.TempDir()}), changed: make(chan struct{}),
		server: &servertest.Process{Client: servertest.Client{HTTP: s.Client(), URL: s.URL}},
	}
}

func TestLifeWithAFaultHasNotKeptEverything(t *testing.T) {
	t.Parallel()
	const kept, faulty = "containers that lived and kept everything", "containers with faults"
	for name, tt := range map[string]struct {
		log  string
		want string
	}{
		"all there":      {"1-a\n", kept},
		"a lost line":    {"\n", faulty},
		"a foreign line": {"1-a\n2-b\n", faulty},
	} {
		w := fakeServer(t, tt.log)
		b := &box{w: w, id: "container_1", blob: map[string]bool{}, lines: []line{{"1-a", true}}}
		b.end(context.WithoutCancel(t.Context()), time.Minute)
		if w.report.counts[kept]+w.report.counts[faulty] != 1 || w.report.counts[tt.want] != 1 {
			t.Errorf("%s: counted %v, faults %v", name, w.report.counts, w.report.faults)
		}
		if (w.report.verdict() == nil) != (tt.want == kept) {
			t.Errorf("%s: the verdict is %v", name, w.report.verdict())
		}
	}
}
